/// Processes of the simulated machine: what an agent starts, signals and reaps, the zygote, and the
/// end of a worker. The linker takes these functions in place of the library's.
#include "tests/simulation/machine/baton.hpp"
#include "troupe/runtime/client/worker.hpp"
#include "troupe/runtime/client/worker_end.hpp"
#include "troupe/runtime/os/child.hpp"
#include "troupe/runtime/os/local_socket.hpp"
#include "troupe/runtime/os/orphans.hpp"
#include "troupe/runtime/os/zygote.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>
#include <memory>
#include <utility>
#include <vector>

namespace troupe::os {
namespace {

using namespace std::chrono_literals;
using sim::machine::Baton;
using sim::machine::Fault;
using sim::machine::Process;

/// The zygote as one simulated thread. It speaks the protocol of os/zygote.cpp.
class Zygote {
 public:
  Zygote(Process& self, Fd socket) : self_(self), socket_(std::move(socket)) {
    self_.parent = this;  // so are its workers': they die with it
  }
  void run() {
    baton_.sleep(Duration(static_cast<std::int64_t>(baton_.random().below(400'000))), "its start");
    report({ZygoteEvent::Kind::ready, 0, self_.pid, 0});
    self_.is_up = true;
    for (;;) {
      if (!socket_.flush()) return end();
      reap();
      pollfd entry{socket_.fd(), socket_.events(), 0};
      baton_.wait({&entry, 1}, Time::max(), "an order, or the end of a worker", this);
      for (;;) {
        std::array<std::byte, 64> buffer;  // an order begins with the token
        Received received = socket_.receive(buffer);
        if (received.kind == Received::Kind::closed) return end();
        if (received.kind != Received::Kind::packet) break;
        std::uint64_t token = 0;
        std::memcpy(&token, buffer.data(), sizeof token);
        order(token, std::move(received.descriptors.at(0)));
      }
    }
  }

 private:
  void reap() {
    for (auto at = workers_.begin(); at != workers_.end();) {
      const Process& worker = **at;
      if (!worker.ended) {
        ++at;
        continue;
      }
      report({ZygoteEvent::Kind::exited, worker.token, worker.pid, worker.status});
      at = workers_.erase(at);
    }
  }
  void report(const ZygoteEvent& event) {
    (void)socket_.send(BlobView(reinterpret_cast<const std::byte*>(&event), sizeof event), {});
  }
  void order(std::uint64_t token, Fd socket) {
    if (baton_.strikes(baton_.plan().late_starts, Fault::late_start))
      baton_.sleep(Duration(static_cast<std::int64_t>(baton_.random().below(300'000'000))),
                   "a late fork");
    if (baton_.strikes(baton_.plan().failed_starts, Fault::failed_start))
      return report({ZygoteEvent::Kind::failed, token, 0, EAGAIN});
    Process& worker = baton_.process("worker");
    worker.token = token;
    worker.parent = this;
    worker.socket = Fd(fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
    workers_.push_back(&worker);
    baton_.start(worker, "main", [mine = std::make_shared<Fd>(std::move(socket)), token] {
      client::run_worker(std::move(*mine), token);
    });
    report({ZygoteEvent::Kind::forked, token, worker.pid, 0});
  }
  void end() {
    const Time until = baton_.now() + kWorkersEnd;
    const auto lives = [](const Process* worker) { return !worker->ended; };
    while (std::any_of(workers_.begin(), workers_.end(), lives) && baton_.now() < until)
      baton_.wait_on(this, until, "its workers to end");
    for (Process* worker : workers_) baton_.kill(*worker, SIGKILL);
    baton_.kill(self_, 0);
  }

  Baton& baton_ = *Baton::current();
  Process& self_;
  LocalSocket socket_;
  std::vector<Process*> workers_;
};

}  // namespace

Result<pid_t> start_zygote(Fd socket, const Program&) {
  Baton* baton = Baton::current();
  Process& zygote = baton->process("zygote");
  zygote.socket = Fd(fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
  baton->start(zygote, "main", [&zygote, mine = std::make_shared<Fd>(std::move(socket))] {
    auto self = std::make_unique<Zygote>(zygote, std::move(*mine));
    self->run();
  });
  return zygote.pid;
}

Fd handle_of(pid_t process) noexcept {
  Process* known = Baton::current()->find(process);
  if (known == nullptr) return {};
  Fd handle(eventfd(known->ended ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK));
  known->handles.emplace_back(fcntl(handle.get(), F_DUPFD_CLOEXEC, 0));
  return handle;
}
Fd life_of_peer(int) {
  for (const Process& process : Baton::current()->processes())
    if (std::strcmp(process.name, "driver") == 0) return handle_of(process.pid);
  return {};
}
void send_signal(pid_t process, int signal) noexcept {
  Baton* baton = Baton::current();
  Process* known = baton->find(process);
  if (known == nullptr || known->ended) return;
  if (signal == SIGKILL) baton->kill(*known, SIGKILL);
  if (signal == SIGSTOP) baton->halt(*known, Time::max());
  if (signal == SIGCONT) baton->halt(*known, Time{});
}
void kill_process(const Fd&) noexcept {}  // no person stops a job here
bool has_ended(pid_t process, const Fd&) noexcept {
  const Process* known = Baton::current()->find(process);
  return known == nullptr || known->ended;
}
bool exited_well(pid_t child) noexcept {
  const Process* known = Baton::current()->find(child);
  return known != nullptr && known->ended && known->status == 0;
}
void reap(pid_t) noexcept {}
void reap_at_end(pid_t child) noexcept {
  while (!has_ended(child, {})) Baton::current()->sleep(1ms, "the end of a zygote");
}

void adopt_orphans() noexcept {}
std::vector<pid_t> children_of_this_process() {
  return {};
}
std::size_t end_orphans(const std::function<bool(pid_t)>&) {
  return 0;
}

}  // namespace troupe::os

namespace troupe::client {

using sim::machine::Baton;

WorkerOutput::WorkerOutput() noexcept : at_start_(std::cout.rdbuf()) {}
void WorkerOutput::pass_on() const noexcept {}
void abandon_worker(bool busy) noexcept {
  if (busy) Baton::current()->exit(SIGKILL);
}
void end_worker_in_order() {
  Baton::current()->exit(0);
}
void end_worker(int code) {
  Baton::current()->exit(code << 8);
}

}  // namespace troupe::client
