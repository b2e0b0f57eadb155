/// The row of a process in a list: what its agent knows and what the kernel says of it.
///
///     selection.keep(process_row("worker", pid, "node-0", job, "mix"));
#pragma once

#include "troupe/runtime/observe/rows.hpp"

#include <sys/types.h>
#include <string>

namespace troupe::agent {

/// `function`: what it runs; empty: unknown. Reads two small files of /proc.
observe::Row process_row(const std::string& kind, pid_t pid, const std::string& node,
                         const std::string& job, const std::string& function);

}  // namespace troupe::agent
