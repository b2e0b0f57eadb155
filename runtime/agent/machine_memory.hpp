/// How much memory is left: of the machine, or of the control group that has least.
///
///     if (guard.is_short(machine_memory())) …
#pragma once

#include "troupe/runtime/agent/memory_guard.hpp"

#include <string>

namespace troupe::agent {

/// Returns the tightest of the machine and of this process's control groups (v1 and v2) with all
/// groups above them. Pages of files count as available. `root` replaces the root of the file
/// system, for tests. Reads a few files.
MachineMemory machine_memory(const std::string& root = "");

}  // namespace troupe::agent
