#include "troupe/runtime/os/zygote.hpp"

#include "troupe/runtime/base/log.hpp"
#include "troupe/runtime/base/standard_descriptors.hpp"
#include "troupe/runtime/os/oom_score.hpp"
#include "troupe/runtime/os/orphans.hpp"
#include "troupe/runtime/os/role.hpp"
#include "troupe/runtime/os/signals.hpp"

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
#include <set>
#include <span>

namespace troupe::os {
namespace {

/// Its descriptors: the worker's socket, its output unless that is the zygote's, and its page if
/// there is one.
struct ForkOrder {
  std::uint64_t token = 0;
  std::uint64_t instead_of_out = 0, instead_of_err = 0;  ///< of the OutputEnds
};

/// The zygote's loop. Single-threaded. Only poll() and end_all() block.
class Zygote {
 public:
  explicit Zygote(Fd socket) : socket_(std::move(socket)) {
    for (const pid_t pid : children_of_this_process()) users_own_.insert(pid);
  }

  /// Returns the socket and token in each forked child. Never returns in the zygote.
  Forked run();

 private:
  /// How long end_all() waits for children to end after SIGKILL.
  static constexpr int kBurialMs = 3000;

  /// Ends the zygote, because the agent is gone. Workers see that, too, and have kWorkersEnd to end
  /// by themselves. Then kills and reaps all children and all processes that the workers have
  /// started.
  [[noreturn]] void end_all();
  void await_workers();
  void report(const ZygoteEvent& event);
  void reap();
  bool fork_lonely(const ForkOrder& order, const OutputEnds& output);
  void start_by_exec(const ForkOrder& order, Fd socket, const OutputEnds& output);

  LocalSocket socket_;
  const ForkerSignals signals_;
  const Fd deaths_ = make_fd(signalfd(-1, &signals_.children(), SFD_CLOEXEC | SFD_NONBLOCK));
  const pid_t self_ = getpid();
  std::map<pid_t, std::uint64_t> workers_;  ///< worker's pid to token
  std::set<pid_t> users_own_;  ///< children that the program started before troupe::run
};

void Zygote::await_workers() {
  const Time until = steady_now() + kWorkersEnd;
  while (!workers_.empty() && steady_now() < until) {
    for (pid_t pid = 0; (pid = waitpid(-1, nullptr, WNOHANG)) > 0;) workers_.erase(pid);
    end_orphans([this](pid_t pid) { return workers_.count(pid) != 0; });
    if (!workers_.empty()) poll(nullptr, 0, 1);
  }
}

void Zygote::end_all() {
  await_workers();
  for (int ms = 0; end_orphans([](pid_t) { return false; }) != 0 && ms < kBurialMs; ++ms)
    poll(nullptr, 0, 1);
  _exit(0);
}

void Zygote::report(const ZygoteEvent& event) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&event);
  if (!socket_.send(BlobView(bytes, sizeof event), {})) end_all();
}

/// Reaps dead workers and reports them, as long as the socket has room; the others stay zombies.
/// Processes that a dead worker had started are now children of the zygote; they are ended, too.
void Zygote::reap() {
  int status = 0;
  bool ended = false;
  for (pid_t pid = 0; !socket_.has_queued() && (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    ended = true;
    users_own_.erase(pid);
    if (const auto worker = workers_.extract(pid))
      report({ZygoteEvent::Kind::exited, worker.mapped(), pid, status});
  }
  if (ended)
    end_orphans(
        [this](pid_t pid) { return workers_.count(pid) != 0 || users_own_.count(pid) != 0; });
}

/// Forks a worker. Returns true in the child.
bool Zygote::fork_lonely(const ForkOrder& order, const OutputEnds& output) {
  const pid_t pid = fork();
  if (pid == 0) {
    take_output(output);
    die_with_parent(self_);
    adopt_orphans();
    raise_oom_score();
    signals_.restore();
    prctl(PR_SET_NAME, "troupe-worker");
    return true;
  }
  const int error = errno;
  if (pid > 0) workers_.emplace(pid, order.token);
  report({pid > 0 ? ZygoteEvent::Kind::forked : ZygoteEvent::Kind::failed, order.token,
          pid > 0 ? pid : 0, error});
  return false;
}

void Zygote::start_by_exec(const ForkOrder& order, Fd socket, const OutputEnds& output) {
  errno = 0;
  Program program;
  program.out = output.out.get();
  program.err = output.err.get();
  program.page = output.page.get();
  const auto pid = spawn(Role::worker, std::move(socket),
                         std::to_string(self_) + "," + std::to_string(order.token) + "," +
                             std::to_string(output.page.get()),
                         program);
  const int error = errno != 0 ? errno : EAGAIN;
  if (pid) workers_.emplace(*pid, order.token);
  report({pid ? ZygoteEvent::Kind::forked : ZygoteEvent::Kind::failed, order.token, pid ? *pid : 0,
          error});
}

Forked Zygote::run() {
  const bool lonely = count_threads() == 1;
  if (!lonely)
    log_line_now(
        "something before troupe::run started a thread (a static initialiser, a BLAS library); "
        "workers are started by exec instead of fork, 4 ms instead of 0.2 ms");
  else
    std::fflush(nullptr);  // a worker would write what it inherits once more
  report({ZygoteEvent::Kind::ready, 0, self_, lonely ? 1 : 0});
  for (;;) {
    const short events = socket_.has_queued() ? POLLOUT : POLLIN;
    pollfd entries[2] = {{socket_.fd(), events, 0}, {deaths_.get(), POLLIN, 0}};
    poll(entries, 2, -1);
    signalfd_siginfo info;
    while (read(deaths_.get(), &info, sizeof info) == sizeof info) {
    }
    if (!socket_.flush()) end_all();
    reap();
    if (socket_.has_queued()) continue;
    std::array<std::byte, sizeof(ForkOrder)> buffer;
    Received received = socket_.receive(buffer);
    if (received.kind == Received::Kind::closed) end_all();
    if (received.kind == Received::Kind::empty) continue;
    const bool starved = received.kind == Received::Kind::starved;
    if (starved) socket_.skip();
    const std::size_t count = received.descriptors.size();
    if (received.size != sizeof(ForkOrder) || (starved ? count != 0 : count < 1 || count > 4))
      continue;
    ForkOrder order;
    std::memcpy(&order, buffer.data(), sizeof order);
    if (starved) {
      report({ZygoteEvent::Kind::failed, order.token, 0, EMFILE});
      continue;
    }
    Fd socket = std::move(received.descriptors[0]);
    OutputEnds output;
    if (count > 2) {
      output.out = std::move(received.descriptors[1]);
      output.err = std::move(received.descriptors[2]);
    }
    if (count % 2 == 0) output.page = std::move(received.descriptors[count - 1]);
    output.instead_of_out = order.instead_of_out;
    output.instead_of_err = order.instead_of_err;
    if (!lonely)
      start_by_exec(order, std::move(socket), output);
    else if (fork_lonely(order, output))
      return {std::move(socket), order.token, std::move(output.page)};
  }
}

}  // namespace

bool ZygoteLink::fork_worker(std::uint64_t token, Fd socket, OutputEnds output) {
  waiting_.push_back({token, std::move(socket), std::move(output)});
  return send_orders();
}

/// Sends waiting orders, up to kOrdersUnderWay unanswered ones.
bool ZygoteLink::send_orders() {
  for (; !waiting_.empty() && under_way_ < kOrdersUnderWay; ++under_way_) {
    const Order& next = waiting_.front();
    const ForkOrder order{next.token, next.output.instead_of_out, next.output.instead_of_err};
    std::array<int, kMaxDescriptors> descriptors{next.socket.get()};
    std::size_t count = 1;
    if (next.output)
      for (const Fd* fd : {&next.output.out, &next.output.err}) descriptors[count++] = fd->get();
    if (next.output.page) descriptors[count++] = next.output.page.get();
    if (!socket_.send(BlobView(reinterpret_cast<const std::byte*>(&order), sizeof order),
                      std::span(descriptors).first(count)))
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
    if (received.kind != Received::Kind::packet || received.size != sizeof(ZygoteEvent)) {
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
  // From now on the zygote ends when the agent's socket closes. SIGKILL at the agent's death would
  // leave it no time to end its children. SIGCONT instead wakes a stopped zygote, so that it sees
  // the close.
  prctl(PR_SET_PDEATHSIG, SIGCONT);
  adopt_orphans();
  return Zygote(std::move(fd)).run();
}

}  // namespace troupe::os
