#include "troupe/runtime/process/zygote.hpp"

#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/runtime/process/role.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>

namespace troupe::process {
namespace {

struct ForkOrder {
  std::uint64_t token = 0;
};

/// The agent is gone: nothing of ours stays behind.
[[noreturn]] void bury_all(const std::map<pid_t, std::uint64_t>& children) {
  for (const auto& [pid, token] : children) ::kill(pid, SIGKILL);
  for (const auto& [pid, token] : children) waitpid(pid, nullptr, 0);
  _exit(0);
}

void report(LocalSocket& socket, const std::map<pid_t, std::uint64_t>& children,
            const ZygoteEvent& event) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&event);
  if (!socket.send(BlobView(bytes, sizeof event), {})) bury_all(children);
}

/// As many as can be reported now; the others stay zombies.
void reap(LocalSocket& socket, std::map<pid_t, std::uint64_t>& children) {
  int status = 0;
  for (pid_t pid = 0; !socket.has_queued() && (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto child = children.extract(pid);
    if (!child) continue;  // a child of the user's own
    report(socket, children, {ZygoteEvent::Kind::exited, child.mapped(), pid, status});
  }
}

}  // namespace

bool ZygoteLink::fork_worker(std::uint64_t token, Fd socket) {
  waiting_.push_back({token, std::move(socket)});
  return send_orders();
}

/// As many as may be under way.
bool ZygoteLink::send_orders() {
  for (; !waiting_.empty() && under_way_ < kOrdersUnderWay; ++under_way_) {
    const ForkOrder order{waiting_.front().token};
    const int descriptors[] = {waiting_.front().socket.get()};
    if (!socket_.send(BlobView(reinterpret_cast<const std::byte*>(&order), sizeof order),
                      descriptors))
      return false;
    waiting_.pop_front();
  }
  return true;
}

std::vector<ZygoteEvent> ZygoteLink::read(bool& gone) {
  std::vector<ZygoteEvent> events;
  gone = !socket_.flush();
  std::array<std::byte, sizeof(ZygoteEvent)> buffer;
  for (;;) {
    const Received received = socket_.receive(buffer);
    if (received.kind == Received::Kind::empty) {
      gone = gone || !send_orders();
      return events;
    }
    if (received.kind == Received::Kind::closed || received.size != sizeof(ZygoteEvent)) {
      gone = true;
      return events;
    }
    ZygoteEvent event;
    std::memcpy(&event, buffer.data(), sizeof event);
    const bool answers =
        event.kind == ZygoteEvent::Kind::forked || event.kind == ZygoteEvent::Kind::failed;
    if (answers && under_way_ > 0) --under_way_;
    events.push_back(event);
  }
}

Forked run_zygote(Fd fd) {
  prctl(PR_SET_NAME, "troupe-zygote");
  LocalSocket socket(std::move(fd));
  sigset_t set, before;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  sigprocmask(SIG_BLOCK, &set, &before);
  Fd signals = make_fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  const bool lonely = count_threads() == 1;
  if (!lonely)
    std::fprintf(
        stderr,
        "troupe: something before troupe::run started a thread (a static initialiser, a BLAS "
        "library); workers are started by exec instead of fork, 4 ms instead of 0.2 ms\n");
  std::map<pid_t, std::uint64_t> children;
  const pid_t self = getpid();
  report(socket, children, {ZygoteEvent::Kind::ready, 0, self, lonely ? 1 : 0});
  for (;;) {
    const short events = socket.has_queued() ? POLLOUT : POLLIN;
    pollfd entries[2] = {{socket.fd(), events, 0}, {signals.get(), POLLIN, 0}};
    poll(entries, 2, -1);
    signalfd_siginfo info;
    while (read(signals.get(), &info, sizeof info) == sizeof info) {
    }
    if (!socket.flush()) bury_all(children);
    reap(socket, children);
    if (socket.has_queued()) continue;
    std::array<std::byte, sizeof(ForkOrder)> buffer;
    Received received = socket.receive(buffer);
    if (received.kind == Received::Kind::closed) bury_all(children);
    if (received.kind == Received::Kind::empty) continue;
    if (received.size != sizeof(ForkOrder) || received.descriptors.size() != 1) continue;
    ForkOrder order;
    std::memcpy(&order, buffer.data(), sizeof order);
    if (!lonely) {
      const auto pid = spawn(Role::worker, std::move(received.descriptors[0]),
                             std::to_string(self) + "," + std::to_string(order.token));
      if (pid) children.emplace(*pid, order.token);
      report(socket, children,
             {pid ? ZygoteEvent::Kind::forked : ZygoteEvent::Kind::failed, order.token,
              pid ? *pid : 0, errno});
      continue;
    }
    const pid_t pid = fork();
    if (pid == 0) {
      die_with_parent(self);
      sigprocmask(SIG_SETMASK, &before, nullptr);
      prctl(PR_SET_NAME, "troupe-worker");
      return {std::move(received.descriptors[0]), order.token};
    }
    if (pid > 0) children.emplace(pid, order.token);
    report(socket, children,
           {pid > 0 ? ZygoteEvent::Kind::forked : ZygoteEvent::Kind::failed, order.token,
            pid > 0 ? pid : 0, errno});
  }
}

}  // namespace troupe::process
