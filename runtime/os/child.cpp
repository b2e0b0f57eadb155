#include "troupe/runtime/os/child.hpp"

#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/runtime/base/wait.hpp"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <string>
#include <utility>

namespace troupe::os {
namespace {

constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD, Linux 6.5

}  // namespace

Result<pid_t> start_zygote(Fd socket, const Program& program) {
  return spawn(Role::zygote, std::move(socket), std::to_string(::getpid()), program);
}

Fd handle_of(pid_t process) noexcept {
  return make_fd(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
}

Fd life_of_peer(int socket) {
  int life = -1;
  socklen_t size = sizeof life;
  if (getsockopt(socket, SOL_SOCKET, kPeerPidfd, &life, &size) == 0) return make_fd(life);
  ucred peer{};
  size = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0) return {};
  return handle_of(peer.pid);
}

void send_signal(pid_t process, int signal) noexcept {
  ::kill(process, signal);
}

void kill_process(const Fd& handle) noexcept {
  (void)syscall(SYS_pidfd_send_signal, handle.get(), SIGKILL, nullptr, 0);
}

bool has_ended(pid_t process, const Fd& handle) noexcept {
  if (const pid_t reaped = waitpid(process, nullptr, WNOHANG); reaped >= 0) return reaped > 0;
  return !handle || is_ready(handle.get());
}

bool exited_well(pid_t child) noexcept {
  siginfo_t how{};
  return waitid(P_PID, static_cast<id_t>(child), &how, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         how.si_code == CLD_EXITED && how.si_status == 0;
}

void reap(pid_t child) noexcept {
  (void)waitpid(child, nullptr, WNOHANG);
}

void reap_at_end(pid_t child) noexcept {
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace troupe::os
