/// How much memory of this machine objects may take.
#pragma once

#include "troupe/runtime/base/units.hpp"

#include "troupe/runtime/base/assert.hpp"
#include "troupe/runtime/base/result.hpp"

#include <string>

namespace troupe::objectstore {

/// What this process may use: the least of physical memory and every memory limit of its control
/// groups (v1 and v2) and theirs above it. Shared memory is charged to the group of the process
/// that touches a page first. Reads a few files.
TROUPE_API Bytes usable_memory();

/// 30% of usable_memory(); at least 64 MiB, at most 256 GiB.
TROUPE_API Bytes default_arena_bytes();

/// Whether so many stores of that size make sense on this machine. Errors: InvalidArgument, with
/// the least or the most that does.
TROUPE_API Result<void> check_arena(Bytes each, unsigned stores);

/// The least memory limit that the control groups set, in bytes; zero when there is none. `root`
/// stands for the root of the file system, for tests.
TROUPE_API Bytes cgroup_memory_limit(const std::string& root = "");

}  // namespace troupe::objectstore
