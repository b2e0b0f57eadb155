/// Computes how much memory of this machine objects may take, from its size and its control groups.
/// The agent and the launchers of nodes ask here.
#pragma once

#include "troupe/runtime/base/units.hpp"

#include "troupe/runtime/base/assert.hpp"
#include "troupe/runtime/base/result.hpp"

#include <string>

namespace troupe::objectstore {

/// Returns the memory that this process may use: the least of physical memory and the limits of its
/// control groups (v1 and v2) and of all groups above them. Shared memory counts for the group of
/// the process that touches a page first. Reads a few files.
TROUPE_API Bytes usable_memory();

/// Returns 30% of usable_memory(), at least 64 MiB and at most 256 GiB.
TROUPE_API Bytes default_arena_bytes();

/// Checks that `stores` object stores of this size each fit the machine. Error: InvalidArgument,
/// which names the least or the most that fits.
TROUPE_API Result<void> check_arena(Bytes each, unsigned stores);

/// Returns the least memory limit of the control groups in bytes, or zero without a limit. `root`
/// replaces the root of the file system, for tests.
TROUPE_API Bytes cgroup_memory_limit(const std::string& root = "");

}  // namespace troupe::objectstore
