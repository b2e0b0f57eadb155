#include "troupe/actors/collective/internal/sockets.hpp"

#include "troupe/runtime/base/deadline.hpp"
#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>

namespace troupe::collective::internal {
namespace {

/// Returns the time left for poll(2), rounded up so that a wait does not end early, and at most a
/// quarter of an hour.
int milliseconds_until(Time deadline) noexcept {
  const Duration left = time_left(deadline, steady_now());
  if (left >= std::chrono::minutes(15)) return 900'000;
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
}

}  // namespace

int poll_until(std::span<pollfd> sockets, Time deadline) noexcept {
  for (;;) {
    const int n = ::poll(sockets.data(), sockets.size(), milliseconds_until(deadline));
    if (n > 0) return n;
    if (n < 0 && errno != EINTR) pause(std::chrono::milliseconds(5), deadline);  // ENOMEM
    if (steady_now() >= deadline) return 0;
  }
}

bool is_readable_by(const Fd& socket, Time deadline) noexcept {
  pollfd one{socket.get(), POLLIN, 0};
  return poll_until({&one, 1}, deadline) > 0;
}

void pause(Duration length, Time deadline) noexcept {
  const Time end = std::min(deadline, deadline_after(steady_now(), length));
  while (steady_now() < end) ::poll(nullptr, 0, milliseconds_until(end));
}

bool is_shortage(int error) noexcept {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

Fd accept_until(const Fd& listener, Time deadline) {
  int why = 0;
  while (is_readable_by(listener, deadline) && (why == 0 || steady_now() < deadline)) {
    Fd peer = make_fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (peer) return peer;
    why = errno;
    // The connection stays in the queue, so poll() would return at once: pause first.
    if (is_shortage(why)) pause(std::chrono::milliseconds(5), deadline);
  }
  if (is_shortage(why))
    throw Unavailable(Code::unavailable, std::string("a rank cannot be let in: ") +
                                             std::strerror(why) +
                                             "; close files, or raise the limit (`ulimit -n`)");
  return Fd();
}

}  // namespace troupe::collective::internal
