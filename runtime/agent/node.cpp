#include "troupe/runtime/agent/node.hpp"

#include "troupe/runtime/agent/agent.hpp"
#include "troupe/runtime/process/role.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace troupe::agent {
namespace {

using namespace std::chrono_literals;

int usable_cpus() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

scheduling::LeaseOptions lease_options(const NodeOptions& options) {
  scheduling::LeaseOptions lease;
  lease.total.cpus = scheduling::amount_of(options.cpus);
  lease.total.gpus = scheduling::amount_of(options.gpus);
  const auto pages = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES));
  lease.total.memory = pages * static_cast<std::int64_t>(sysconf(_SC_PAGESIZE));
  lease.name = options.name;
  lease.max_workers = static_cast<std::uint32_t>(std::max(1.0, options.cpus));
  lease.extra_worker_interval = 10ms;
  lease.infeasible_timeout = 0s;  // a private node: nobody else will ever bring what is missing
  return lease;
}

}  // namespace

Node::Node(NodeOptions options)
    : options_(std::move(options)),
      id_(NodeId::random()),
      bell_(ring::Doorbell::create().value()),
      host_(objectstore::Host::create([&] {
              objectstore::HostOptions store;
              store.arena = options_.memory;
              return store;
            }())
                .value()),
      leases_(lease_options(options_), id_),
      control_(std::make_unique<LocalControl>(id_)),
      actors_(*this, *control_, id_) {
  lines_.push_back(0);  // line 0 is never used
}

Node::~Node() = default;

void Node::serve(Fd driver) {
  auto process = std::make_unique<Process>();
  process->index = driver_ = next_process_++;
  process->socket = process::LocalSocket(std::move(driver));
  processes_.emplace(driver_, std::move(process));
  start_zygote();
  loop();
  end_zygote();
}

Node::Process* Node::find(ProcessIndex index) {
  const auto found = processes_.find(index);
  return found == processes_.end() || found->second->doomed ? nullptr : found->second.get();
}

std::uint32_t Node::take_line() {
  for (std::uint32_t line = 1; line < lines_.size(); ++line)
    if (lines_[line] == 0) return line;
  lines_.push_back(0);
  return static_cast<std::uint32_t>(lines_.size() - 1);
}

void Node::loop() {
  while (!over_) {
    drain_bell();
    carry_out_deferred();
    on_timer();
    do {
      bury_doomed();
      carry_out_leases();
    } while (hear_control());
    send_notices();
    // The ring of a worker that is about to be reaped has not been read: it may count a holder.
    const bool unread = std::any_of(processes_.begin(), processes_.end(),
                                    [](const auto& entry) { return entry.second->doomed; });
    const bool again = (!unread && owners_.settle()) || !readers_.empty() || control_->pending();
    if (over_) break;
    Time until = leases_.next_deadline().value_or(Time::max());
    if (const auto deadline = control_->next_deadline()) until = std::min(until, *deadline);
    if (prefault_more_) until = std::min(until, steady_now() + 2ms);
    if (again || bell_.pending() || !bell_.prepare_sleep()) {
      poll_once(steady_now());
      continue;
    }
    poll_once(until);
    bell_.finish_sleep();
  }
}

void Node::poll_once(Time until) {
  std::vector<pollfd> set;
  std::vector<ProcessIndex> who;
  set.push_back({bell_.event_fd(), POLLIN, 0});
  set.push_back({zygote_ ? zygote_.fd() : -1, POLLIN, 0});
  for (const auto& [index, process] : processes_) {
    const short events = process->socket.has_queued() ? POLLIN | POLLOUT : POLLIN;
    set.push_back({process->socket.fd(), events, 0});
    who.push_back(index);
  }
  const Duration left = std::clamp<Duration>(until - steady_now(), Duration(0), Duration(10s));
  const timespec limit{static_cast<time_t>(left.count() / 1'000'000'000),
                       static_cast<long>(left.count() % 1'000'000'000)};
  const int ready = ppoll(set.data(), set.size(), &limit, nullptr);
  if (ready == 0 && prefault_more_ && left <= 2ms)
    prefault_more_ = host_->prefault(Bytes{4u << 20});
  if (ready <= 0) return;
  if (set[1].revents != 0) on_zygote();
  for (std::size_t i = 0; i < who.size(); ++i)
    if (set[i + 2].revents != 0)
      if (Process* process = find(who[i])) drain_socket(*process);
}

void Node::drain_bell() {
  // Until nothing is ready: settle() relies on everything published before having been read.
  for (int pass = 0; pass < 1000 && bell_.take(ready_lines_); ++pass) {
    const std::vector<std::uint32_t> lines = ready_lines_;
    for (const std::uint32_t line : lines)
      if (line < lines_.size() && lines_[line] != 0)
        if (Process* process = find(lines_[line])) drain_ring(*process);
  }
}

void Node::drain_ring(Process& process) {
  std::size_t size = 0;
  std::vector<Fd> none;
  process.channel.flush();
  while (!process.doomed) {
    const ring::Pop pop = process.channel.receive(frame_.data(), size);
    if (pop == ring::Pop::empty) return;
    if (pop == ring::Pop::corrupt) return break_off(process, "its ring is damaged");
    auto decoded = wire::decode_node(BlobView(frame_.data(), size));
    if (!decoded) return break_off(process, "it sent a bad message: " + decoded.error().message());
    handle(process, decoded->message, decoded->payload, none);
  }
}

void Node::drain_socket(Process& process) {
  if (!process.socket.flush()) return break_off(process, "its connection closed");
  while (!process.doomed) {
    process::Received received = process.socket.receive(packet_);
    if (received.kind == process::Received::Kind::empty) return;
    if (received.kind == process::Received::Kind::closed)
      return break_off(process, "its connection closed");
    auto decoded = wire::decode_node(BlobView(packet_.data(), received.size));
    if (!decoded) return break_off(process, "it sent a bad message: " + decoded.error().message());
    handle(process, decoded->message, decoded->payload, received.descriptors);
  }
}

void Node::on_timer() {
  const Time now = steady_now();
  if (const auto deadline = leases_.next_deadline(); deadline && *deadline <= now)
    leases_.on_timer(now);
}

/// The process is to go: a driver by its own will, a worker by force. Its burial follows when all
/// it sent was read.
void Node::break_off(Process& process, const std::string& why) {
  if (process.doomed) return;
  if (process.kind == wire::ProcessKind::worker && process.pid > 0) ::kill(process.pid, SIGKILL);
  process.reason = why;
  process.doomed = true;
}

void Node::bury_doomed() {
  std::vector<ProcessIndex> doomed;
  for (const auto& [index, process] : processes_)
    if (process->doomed) doomed.push_back(index);
  for (const ProcessIndex index : doomed) {
    Process& process = *processes_.at(index);
    // A worker is dead for certain only when the zygote has reaped it; that report carries the
    // reason too.
    if (process.kind == wire::ProcessKind::worker && process.pid > 0) continue;
    bury(process);
  }
}

void Node::bury(Process& process) {
  const ProcessIndex index = process.index;
  process.doomed = false;  // so that its last messages are read
  if (process.introduced) drain_ring(process);
  process.doomed = true;
  if (index == driver_) over_ = true;
  const Time now = steady_now();
  ErrorInfo info;
  info.code = Code::worker_died;
  info.message = process.reason;
  info.origin.node = options_.name;
  const Error reason(std::move(info));
  for (const ProcessIndex peer : process.peers)
    if (Process* other = find(peer)) {
      other->peers.erase(index);
      send(*other, wire::PeerDied{index, process.reason});
    }
  actors_.worker_died(index, reason);
  leases_.worker_died(index, now);
  leases_.owner_died(index, now);
  owners_.process_died(index, reason);
  if (process.attached) host_->process_died(process.store_index);
  if (process.line != 0) lines_[process.line] = 0;
  processes_.erase(index);
}

void run_agent(Fd driver, const std::string& options) {
  prctl(PR_SET_NAME, "troupe-agent");
  prctl(PR_SET_DUMPABLE, 0);
  std::signal(SIGINT, SIG_IGN);  // Ctrl-C reaches the whole group: the driver decides
  std::signal(SIGPIPE, SIG_IGN);
  process::raise_file_limit();
  NodeOptions node;
  char* end = nullptr;
  node.cpus = std::strtod(options.c_str(), &end);
  if (node.cpus <= 0) node.cpus = usable_cpus();
  if (*end == ',') node.memory = Bytes{std::strtoull(end + 1, nullptr, 10)};
  node.name = "local";
  int code = 0;
  try {
    Node(node).serve(std::move(driver));
  } catch (const Error& error) {
    std::fprintf(stderr, "troupe: the node's agent could not go on: %s\n", explain(error).c_str());
    code = 1;
  }
  std::fflush(nullptr);
  _exit(code);
}

}  // namespace troupe::agent
