/// Node's loop, its processes' ends, and run_agent().
#include "troupe/runtime/agent/node.hpp"
#include "troupe/runtime/agent/agent.hpp"
#include "troupe/runtime/agent/process_limit.hpp"
#include "troupe/runtime/base/log.hpp"
#include "troupe/runtime/base/machine.hpp"
#include "troupe/runtime/base/usable_cpus.hpp"
#include "troupe/runtime/base/wait.hpp"
#include "troupe/runtime/os/child.hpp"
#include "troupe/runtime/os/orphans.hpp"
#include "troupe/runtime/os/process_title.hpp"
#include "troupe/runtime/os/role.hpp"

#include <sys/prctl.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <set>

namespace troupe::agent {
namespace {

using namespace std::chrono_literals;

/// `newcomers_within`: how long a demand that no node can take waits for a new node.
scheduling::LeaseOptions lease_options(const NodeOptions& options, Duration newcomers_within) {
  scheduling::LeaseOptions lease;
  lease.total.cpus = scheduling::amount_of(options.cpus);
  lease.total.gpus = scheduling::amount_of(options.gpus);
  lease.total.memory = static_cast<std::int64_t>(physical_memory().count);
  lease.name = options.name;
  lease.max_workers = static_cast<std::uint32_t>(std::max(1.0, options.cpus));
  lease.extra_worker_interval = 10ms;
  const ProcessLimit limit = process_limit(objectstore::Layout{}.processes, os::file_limit());
  lease.max_processes = limit.workers;
  lease.process_limit = limit.why;
  lease.kept_processes = kept_for_tasks(limit.workers, lease.max_workers);
  lease.total.custom.reserve(options.resources.size());
  for (const auto& [name, amount] : options.resources)
    lease.total.custom.emplace_back(name, scheduling::amount_of(amount));
  lease.labels = options.labels;
  lease.infeasible_timeout = newcomers_within;
  return lease;
}

std::unique_ptr<objectstore::Host> make_host(const NodeOptions& options) {
  objectstore::HostOptions store;
  store.arena = options.memory.count != 0 ? options.memory : objectstore::default_arena_bytes();
  // Memory is granted by the extent, so extents are small in a small arena.
  constexpr std::uint64_t kMiB = 1u << 20;
  store.extent =
      Bytes{std::clamp(store.arena.count / 16 / kMiB, std::uint64_t{1}, std::uint64_t{64}) * kMiB};
  return objectstore::Host::create(store).value();
}

/// Answers a driver's Hello with the reason why there is no node for it. The Hello is read first:
/// closing a socket with unread data may discard the answer.
void refuse(os::LocalSocket driver, const std::string& why) {
  std::array<std::byte, 4096> greeting;
  pollfd entry{driver.fd(), POLLIN, 0};
  if (wait_for({&entry, 1}, 2s) > 0) (void)driver.receive(greeting);
  (void)driver.send(wire::FrameWriter().encode(wire::NodeMessage(wire::Shutdown{why})), {});
}

/// Runs a private node for one driver. Returns the exit code.
int run_private(Fd driver, const std::string& offer) {
  std::unique_ptr<Node> node;
  try {
    NodeOptions options{os::parse_offer(offer).value(), "local"};
    if (options.cpus <= 0) options.cpus = usable_cpus();
    node = std::make_unique<Node>(std::move(options));
  } catch (const Error& error) {
    refuse(os::LocalSocket(std::move(driver)), error.message());
    return 1;
  }
  node->serve(std::move(driver));
  return 0;
}

/// Runs a node of a cluster. The launcher sends its AgentConfig and is told whether it serves.
/// Returns the exit code.
int run_member(Fd launcher) {
  const int socket = launcher.get();
  std::unique_ptr<Node> node;
  std::string name = "an agent";
  try {
    os::AgentConfig config = os::receive_agent_config(socket, 10s).value();
    name = config.name;
    os::show_title("troupe: agent " + name);
    NodeOptions options;
    static_cast<os::NodeOffer&>(options) = static_cast<const os::NodeOffer&>(config);
    if (config.without_slots)
      options.cpus = 0;
    else if (options.cpus <= 0)
      options.cpus = usable_cpus();
    options.name = config.name;
    node = std::make_unique<Node>(std::move(options), std::move(config));
  } catch (const Error& error) {
    (void)os::send_ready(socket, {"", error.message()});
    return 1;
  }
  const std::string why = node->serve_cluster(std::move(launcher));
  if (why.empty()) return 0;
  log_line("%s ends: %s", name.c_str(), why.c_str());
  return 1;
}

}  // namespace

Node::Node(NodeOptions options)
    : options_(std::move(options)),
      environment_(read_options(Environment())),
      id_(NodeId::random()),
      host_(make_host(options_)),
      leases_(lease_options(options_, 0s), id_),
      leasing_(id_, options_.gpus > 0,
               {leases_, remote_, actors_, lineage_cache_, sender_, workers_}),
      lineage_cache_(references_, leasing_, environment_.lineage),
      control_(std::make_unique<LocalControl>(id_)),
      actors_(actor_effects_, sender_, id_),
      jobs_(sender_, {.is_private = true}),
      replica_host_(id_, {references_, owners_, cluster_, inquiries_, sender_, sender_, objects_}) {
  open_spiller();
}

Node::Node(NodeOptions options, os::AgentConfig config)
    : options_(std::move(options)),
      environment_(read_options(Environment())),
      id_(config.node),
      host_(make_host(options_)),
      // An embedded cluster has all its nodes from the start, but their list may lack some for a
      // moment while control restarts.
      leases_(lease_options(options_, config.embedded ? 2s : 60s), id_),
      leasing_(id_, options_.gpus > 0,
               {leases_, remote_, actors_, lineage_cache_, sender_, workers_}),
      lineage_cache_(references_, leasing_, environment_.lineage),
      actors_(actor_effects_, sender_, id_),
      jobs_(sender_, {.is_embedded = config.embedded}),
      replica_host_(id_, {references_, owners_, cluster_, inquiries_, sender_, sender_, objects_}) {
  open_spiller();
  join(std::move(config));
}

Node::~Node() = default;

void Node::serve(Fd driver) {
  Fd life = os::life_of_peer(driver.get());
  Process& process = processes_.add(os::LocalSocket(std::move(driver)));
  process.life = std::move(life);
  Job& job = jobs_.of(JobId::random());
  job.state = Job::State::ready;
  job.driver = process.index;
  process.job = job.id;
  process.job_number = job.number;
  (void)workers_.zygotes().start(job);  // early; if it fails, the first worker tries again
  loop();
  workers_.end_all();
}

std::string Node::serve_cluster(Fd launcher) {
  doors_.set_launcher(std::move(launcher));
  loop();
  workers_.end_all();
  if (logs_) logs_->end();
  if (over_why_.empty()) leave();
  return over_why_;
}

/// Runs passes until the node ends. A pass reads all rings first, then carries out what had to wait
/// for that, lets each part act, hands the network its frames, and sleeps until the next event or
/// deadline.
void Node::loop() {
  while (!over_) {
    objects_.pass_begins();
    objects_.pass_ended(processes_.read_rings());
    objects_.carry_out_deferred();
    on_timer();
    do {  // again while a private node's control has answers: they may end workers or ask for some
      end_processes();
      leasing_.pass_begins(steady_now());
      lineage_cache_.carry_out();
      for (auto events = leases_.take_events(); !events.empty(); events = leases_.take_events())
        for (auto& event : events) leasing_.carry_out(event, steady_now());
    } while (hear_control());
    forget_ended_jobs();
    folder_copies_.serve(steady_now());
    replica_host_.carry_out(steady_now());
    if (LocationQuery& places = replica_host_.places(); places.next_deadline() != Time::max())
      places.carry_out(steady_now());
    extents_.answer_quota(steady_now());
    extents_.serve(steady_now());
    memory_.guard(steady_now());
    objects_.send_notices();
    extents_.tell();
    const bool again = (!processes_.has_unread() && (settle() || objects_.has_frees())) ||
                       actor_effects_.pending() || lineage_cache_.pending() ||
                       replica_host_.replicas().pending() || objects_.has_readers() ||
                       (control_ && control_->pending());
    if (network_) {
      report(steady_now());
      tell_pace(steady_now());
      keep_in_touch(steady_now());
      leave_if_drained(steady_now());
      network_->flush(steady_now());
    }
    if (over_) break;
    // prepare_sleep() announces the sleep, then looks at the slots once more: a writer that came in
    // between either sees the announcement or is seen.
    if (again || processes_.bell().pending() || !processes_.bell().prepare_sleep()) {
      poll_once(steady_now());
      continue;
    }
    poll_once(next_deadline());
    processes_.bell().finish_sleep();
  }
}

/// Settles the reference counts once, then makes the actors whose names waited for that. Returns
/// true if there is more to settle.
bool Node::settle() {
  const bool more = references_.settle();
  actor_effects_.settled();
  return more || actor_effects_.pending();
}

Time Node::next_deadline() const {
  Time until = std::min(leases_.next_deadline().value_or(Time::max()), inquiries_.next_deadline());
  until = std::min({until, jobs_.next_deadline(), job_stops_.next_deadline()});
  until = std::min({until, workers_.next_deadline(), processes_.next_deadline()});
  if (control_)
    if (const auto deadline = control_->next_deadline()) until = std::min(until, *deadline);
  until = std::min({until, memory_.next_deadline(), actors_.next_deadline()});
  until = std::min(until, extents_.next_deadline());
  until = std::min(until, folder_copies_.next_deadline());
  until = std::min(
      {until, replica_host_.replicas().next_deadline(), replica_host_.places().next_deadline()});
  until = std::min(until, doors_.next_deadline(steady_now()));
  if (logs_) until = std::min(until, logs_->next_deadline());
  until = std::min(until, observers_.next_deadline());
  if (network_) {
    until =
        std::min({until, draining_.next_deadline(), network_->next_deadline(),
                  transfers_->next_deadline(), programs_->next_deadline(), cluster_.next_report()});
  }
  return until;
}

void Node::poll_once(Time until) {
  PollSet& set = poll_set_;  // its room is kept from pass to pass
  set.clear();
  set.add(processes_.bell().event_fd());
  const std::size_t network = set.add(network_ ? network_->fd() : -1);
  const std::size_t transfers = set.add(transfers_ ? transfers_->fd() : -1);
  set.add(programs_ ? programs_->fd() : -1);
  const std::size_t spill = set.add(extents_.fd());
  const std::size_t copies = set.add(folder_copies_.fd());
  doors_.wait_for(set, steady_now());
  const std::size_t logs = set.add(logs_ ? logs_->fd() : -1);
  set.add(observers_.stacks().fd());
  workers_.zygotes().wait_for(set);
  processes_.wait_for(set);
  const Duration left = std::clamp<Duration>(until - steady_now(), Duration(0), Duration(10s));
  const int ready = set.wait(left);
  memory_.touch_ahead(ready == 0 && left > Duration(0));
  if (network_) serve_network(set.ready(network), set.ready(transfers));
  extents_.note_ready(set.ready(spill));
  folder_copies_.note_ready(set.ready(copies));
  if (logs_ && (set.ready(logs) || logs_->next_deadline() <= steady_now()))
    logs_->serve(steady_now());
  if (observers_.stacks().fd() >= 0) observers_.stacks().serve(steady_now());
  workers_.zygotes().on_timer();
  if (ready <= 0) return;
  workers_.zygotes().serve(set);
  processes_.serve(set);
}

void Node::on_timer() {
  const Time now = steady_now();
  if (const auto deadline = leases_.next_deadline(); deadline && *deadline <= now)
    leases_.on_timer(now);
  if (inquiries_.next_deadline() <= now) inquiries_.expire(now);
  if (observers_.rows().next_deadline() <= now) observers_.rows().on_timer(now);
  actors_.on_tick(now);
  look_at_spills(now);
  for (const JobId late : jobs_.late(now)) end_job(late, "its driver has ended");
  for (const Fd& driver : job_stops_.take_late(now)) os::kill_process(driver);
  workers_.on_timer(now);
}

void Node::end_processes() {
  for (const ProcessIndex index : processes_.ending()) {
    Process& process = *processes_.record(index);
    // A worker is certainly dead only when its zygote has reaped it, or the system says so. The
    // zygote's report also says why it died.
    if (process.kind == wire::ProcessKind::worker && process.pid > 0 &&
        !processes_.look_for_death(process, steady_now()))
      continue;
    // A worker that was not forked yet may count as starting: Workers::gone() ends its start.
    if (process.kind == wire::ProcessKind::worker)
      workers_.gone(index, std::string(process.reason));
    else
      end(process);
  }
}

/// Removes a process that has ended. Reads its last messages first, then tells its peers PeerDied,
/// then every table.
void Node::end(Process& process) {
  const ProcessIndex index = process.index;
  processes_.read_to_the_end(process);
  if (process.kind == wire::ProcessKind::driver) driver_gone(process, false);
  if (const Job* job = jobs_.find(process.job_number);
      process.kind == wire::ProcessKind::driver && process.hung_up && job != nullptr && !job->ended)
    processes_.keep_open(job->number, process);
  const Time now = steady_now();
  ErrorInfo info;
  info.code = Code::worker_died;
  info.message = process.reason;
  info.origin.node = options_.name;
  info.remote_stack = process.stack;
  info.last_lines = process.last_lines;
  const Error reason(std::move(info));
  const std::set<ProcessIndex> peers = processes_.tell_peers(process);
  remote_.process_died(index, {process.reason, process.stack, process.last_lines});
  actors_.worker_died(index, reason);
  leases_.worker_died(index, now);
  leases_.owner_died(index, now);
  references_.process_died(index, reason);
  objects_.process_died(index, peers);
  lineage_cache_.process_died(index);
  leasing_.process_died(index);
  workers_.process_died(index);
  replica_host_.replicas().process_died(index);
  replica_host_.places().process_died(index);
  observers_.process_died(index, now);
  extents_.forget(index, process.store_index);
  if (process.store_index != 0) host_->process_died(process.store_index);
  processes_.remove(index);
}

void run_agent(Fd socket, const std::string& options) {
  prctl(PR_SET_NAME, "troupe-agent");
  prctl(PR_SET_DUMPABLE, 0);
  std::signal(SIGPIPE, SIG_IGN);
  os::adopt_orphans();
  os::raise_file_limit();
  int code = 0;
  try {
    if (options.rfind("cluster", 0) == 0)
      code = run_member(std::move(socket));
    else
      code = run_private(std::move(socket), options);
  } catch (const Error& error) {
    log_line("the node's agent could not go on: %s", explain(error).c_str());
    code = 1;
  }
  std::fflush(nullptr);
  flush_log();
  _exit(code);
}

}  // namespace troupe::agent
