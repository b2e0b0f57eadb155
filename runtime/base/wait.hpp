/// Where a thread of the runtime blocks for something other than a lock. A program that simulates
/// machines defines these functions itself, and thus decides which thread goes on.
///
///     pollfd entry{socket.fd(), POLLIN, 0};
///     if (wait_for({&entry, 1}, deadline - steady_now()) > 0) …
///
/// `check.seams` finds other blocking calls in the rooms whose threads are simulated.
#pragma once

#include "troupe/runtime/base/units.hpp"

#include <poll.h>
#include <span>

namespace troupe {

/// Blocks until a descriptor is ready, as ppoll() does: for `most`, or a day. Zero and less only
/// looks. Returns how many are ready: 0 after that time, -1 with errno, EINTR after a signal.
int wait_for(std::span<pollfd> entries, Duration most) noexcept;
/// Returns whether one of the events, or the descriptor's end, is there now. Never blocks.
bool is_ready(int fd, short events = POLLIN) noexcept;
/// Blocks for this time, or a day, or until a signal handler has run. Async-signal-safe.
void sleep_for(Duration time) noexcept;
/// Lets other threads run, inside a loop that another thread or process ends.
void yield() noexcept;

}  // namespace troupe
