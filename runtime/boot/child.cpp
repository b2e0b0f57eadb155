#include "troupe/runtime/boot/child.hpp"

#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/runtime/os/local_socket.hpp"
#include "troupe/runtime/os/role.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

namespace troupe::boot {

Result<void> Child::start(const std::function<Result<pid_t>(Fd)>& spawn, Duration within) {
  auto ends = os::LocalSocket::pair();
  if (!ends) return ends.error();
  sigset_t none, blocked;  // the child inherits the mask of its starting thread
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, &blocked);
  auto started = spawn(std::move(ends->second));
  pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
  if (!started) return started.error();
  pid = *started;
  socket = std::move(ends->first);
  pidfd = make_fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  state = State::starting;
  since = steady_now();
  deadline = since + within;
  if (!pidfd)
    return Error(Code::out_of_memory, "cannot watch " + who + ": " + std::strerror(errno));
  return {};
}

void Child::serves(Time now) {
  state = State::serving;
  since = now;
}

void Child::ended() {
  state = State::ended;
  socket.reset();
  pidfd.reset();
}

std::optional<std::string> Child::reap() const {
  int status = 0;
  const pid_t got = waitpid(pid, &status, WNOHANG);
  if (got == 0) return std::nullopt;
  if (got < 0) return "ended (somebody else waited for it)";
  return os::describe_status(status);
}

/// Returns whether it has ended; no later than after `time`.
bool Child::wait(Duration time) const {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(std::max<Duration>(time, Duration(0)));
  pollfd entry{pidfd.get(), POLLIN, 0};
  return pidfd && poll(&entry, 1, static_cast<int>(left.count())) > 0;
}

std::optional<std::string> Child::reap_within(Duration time) const {
  return wait(time) ? reap() : std::nullopt;
}

void Child::kill() const {
  ::kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

void Child::end_within(Duration time) {
  if (!wait(time)) ::kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  state = State::ended;
}

void Child::tell_to_end() {
  if (socket) ::shutdown(socket.get(), SHUT_RDWR);
  socket.reset();
}

void Child::announce_end() const {
  const char byte = 1;
  if (socket && state == State::serving)
    (void)!::send(socket.get(), &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace troupe::boot
