/// Waits on sockets that end at a deadline, also when signals or a lack of descriptors or memory
/// interrupt them.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/fd.hpp"

#include <poll.h>

#include <span>

namespace troupe::collective::internal {

/// Waits like poll(2) until the deadline. Returns the number of ready sockets, 0 at the deadline.
/// EINTR does not end the wait.
int poll_until(std::span<pollfd> sockets, Time deadline) noexcept;
/// Waits until the socket is readable or has failed. Returns false at the deadline.
bool is_readable_by(const Fd& socket, Time deadline) noexcept;
/// Blocks for `length`, at most until the deadline.
void pause(Duration length, Time deadline) noexcept;
/// Returns whether accept(2) failed for lack of descriptors or memory, which may be temporary.
bool is_shortage(int error) noexcept;
/// Returns the next connection, with O_NONBLOCK and O_CLOEXEC, or an empty descriptor at the
/// deadline. Throws Unavailable if the system has no descriptor for it at the deadline.
Fd accept_until(const Fd& listener, Time deadline);

}  // namespace troupe::collective::internal
