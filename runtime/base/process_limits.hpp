/// The limits that keep this user from starting processes and threads, in words.
///
///     if (pid < 0) fail("fork failed: " + why_no_process(errno));
///     if (auto can = can_start_threads(2); !can) return can.error();
#pragma once

#include "troupe/runtime/base/result.hpp"

#include <string>

namespace troupe {

/// Returns a sentence's end that names each limit of processes and threads, with the value of
/// `ulimit -u`, and says what to do.
std::string limits_of_processes();

/// Returns the system's text for the errno of a process or thread that could not be started. When a
/// limit may have been reached, limits_of_processes() follows.
std::string why_no_process(int error);

/// Starts `count` threads, which end at once. Blocks until they have ended. Error: OutOfMemory with
/// the text of why_no_process(). Asked before a library that aborts when it gets no thread.
Result<void> can_start_threads(unsigned count);

}  // namespace troupe
