/// How many CPUs this process may use. A node offers that many, unless its user gives a number.
///
///     const unsigned offered = usable_cpus();
#pragma once

#include "troupe/runtime/base/environment.hpp"

#include <string>

namespace troupe {

/// Returns the least of three numbers, at least 1:
/// - the CPUs in the affinity of this thread (taskset, cpusets),
/// - the CPU quotas of this process's control groups and of all groups above them, rounded down,
/// - the CPUs of this host that a batch system has allocated: Slurm, PBS, LSF or Grid Engine.
///
/// Reads a few files, in about 0.1 ms.
unsigned usable_cpus();

/// The two parts of usable_cpus() that a test can replace. Both return 0 without a limit. `root`
/// replaces the root of the file system.
unsigned cpu_quota(const std::string& root = "");
unsigned allocated_cpus(const Environment& environment);

}  // namespace troupe
