/// Waits on sockets that end at a deadline, whatever signals or full tables come between.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/fd.hpp"

#include <poll.h>

#include <span>

namespace troupe::collective::internal {

/// As poll(2), until the deadline; how many are ready, 0 at the deadline. EINTR does not end it.
int poll_until(std::span<pollfd> sockets, Time deadline) noexcept;
/// Whether it could be read, or has failed, before the deadline.
bool is_readable_by(const Fd& socket, Time deadline) noexcept;
/// Blocks for so long, at most until the deadline.
void pause(Duration length, Time deadline) noexcept;
/// Whether accept(2) failed for want of descriptors or memory, which may pass.
bool is_shortage(int error) noexcept;
/// The next connection, with O_NONBLOCK and O_CLOEXEC; none at the deadline. Throws Unavailable
/// when at the deadline the system has no descriptor for it.
Fd accept_until(const Fd& listener, Time deadline);

}  // namespace troupe::collective::internal
