/// What the kernel tells of a process: memory, CPU time and state.
///
///     const ProcessUsage usage = usage_of(pid);
///     if (usage.anonymous) print(*usage.anonymous);
#pragma once

#include <sys/types.h>
#include <cstdint>
#include <optional>
#include <string>

namespace troupe::os {

/// A member without a value is not known: the process has ended, or is another user's.
struct ProcessUsage {
  std::optional<std::int64_t> anonymous;  ///< bytes in memory that no file backs
  std::optional<std::int64_t> shared;     ///< bytes of shared memory that it has touched
  std::optional<double> cpu_seconds;      ///< of all its threads
  std::string state;  ///< runs, sleeps, in_kernel, stopped, ended, other; empty: not known
};

/// Reads two small files of /proc.
ProcessUsage usage_of(pid_t process);

}  // namespace troupe::os
