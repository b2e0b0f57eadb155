/// Workers: asked of the zygote, introduced by their hello, buried when it has reaped them.
#include "troupe/runtime/agent/node.hpp"
#include "troupe/runtime/process/role.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <cstring>

namespace troupe::agent {

void Node::start_zygote() {
  auto ends = process::LocalSocket::pair().value();
  zygote_ = process::ZygoteLink(std::move(ends.first));
  zygote_pid_ =
      process::spawn(process::Role::zygote, std::move(ends.second), std::to_string(::getpid()))
          .value();
}

/// Ends the zygote and with it every worker, and waits for both (a millisecond; SIGKILL after two
/// seconds).
void Node::end_zygote() {
  zygote_ = process::ZygoteLink();
  Fd handle(static_cast<int>(syscall(SYS_pidfd_open, zygote_pid_, 0)));
  pollfd entry{handle.get(), POLLIN, 0};
  if (!handle || poll(&entry, 1, 2000) <= 0) ::kill(zygote_pid_, SIGKILL);
  waitpid(zygote_pid_, nullptr, 0);
}

void Node::start_worker(bool dedicated) {
  auto ends = process::LocalSocket::pair();
  if (!ends) return start_failed(dedicated, ends.error().message());
  auto process = std::make_unique<Process>();
  process->index = next_process_++;
  process->kind = wire::ProcessKind::worker;
  process->socket = process::LocalSocket(std::move(ends->first));
  starting_[process->index] = dedicated;
  // The socket buffers the order until the zygote has come up.
  if (!zygote_.fork_worker(process->index, ends->second.get())) {
    starting_.erase(process->index);
    return start_failed(dedicated, "the zygote is gone");
  }
  processes_.emplace(process->index, std::move(process));
}

void Node::on_zygote() {
  bool gone = false;
  for (const process::ZygoteEvent& event : zygote_.read(gone)) {
    switch (event.kind) {
      case process::ZygoteEvent::Kind::ready:
      case process::ZygoteEvent::Kind::note: break;
      case process::ZygoteEvent::Kind::forked:
        if (const auto found = processes_.find(event.token); found != processes_.end())
          found->second->pid = event.pid;
        break;
      case process::ZygoteEvent::Kind::exited:
        worker_gone(event.token, process::describe_status(event.status));
        break;
      case process::ZygoteEvent::Kind::failed:
        worker_gone(event.token, std::string("fork failed: ") + std::strerror(event.status));
        break;
    }
  }
  if (gone && !over_)
    go_down(
        "its zygote is gone: the program ended or crashed before it reached troupe::run, in the "
        "copy of it "
        "that workers are forked from");
}

/// One failure may pass (descriptors, memory); ten in a row, about two seconds, will not.
void Node::start_failed(bool dedicated, const std::string& why) {
  leases_.worker_start_failed(steady_now(), dedicated);
  if (++failed_starts_ == 1)
    std::fprintf(stderr, "troupe: a worker could not be started: %s\n", why.c_str());
  if (failed_starts_ >= 10) go_down("workers cannot be started: " + why);
}

/// The node cannot serve any more: everybody is told why, and every wait ends.
void Node::go_down(const std::string& why) {
  if (over_) return;
  over_ = true;
  for (auto& [index, process] : processes_) send(*process, wire::Shutdown{why});
}

void Node::worker_gone(std::uint64_t token, const std::string& reason) {
  const auto found = processes_.find(token);
  if (found == processes_.end()) return;
  Process& process = *found->second;
  const auto starting = starting_.find(token);
  if (starting != starting_.end()) {
    const bool dedicated = starting->second;
    starting_.erase(starting);
    start_failed(dedicated, "it ended before it said hello: " + reason);
  }
  process.pid = 0;
  process.reason = reason;
  bury(process);
}

}  // namespace troupe::agent
