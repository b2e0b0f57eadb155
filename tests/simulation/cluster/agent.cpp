/// The loop of a simulated agent, with its processes, leases and jobs. It stands for
/// agent/node.cpp, node_messages.cpp, workers.cpp and node_jobs.cpp, without descriptors.
#include "tests/simulation/cluster/agent.hpp"

#include "tests/simulation/cluster/cluster.hpp"
#include "troupe/runtime/agent/resource_demand.hpp"
#include "troupe/runtime/wire/cases.hpp"

#include <algorithm>
#include <utility>

namespace troupe::sim::cluster {
namespace {

using namespace std::chrono_literals;

using wire::Cases;

// Ids of timers: the agent's own, then one per process for its step, then one per process for the
// interrupt of its actor.
constexpr std::uint64_t kPass = 1, kJoin = 2, kProcess = 1000, kAlarm = 1ull << 40;
constexpr std::size_t kMaxDriverEnds = 64;
constexpr Duration kJobEnds = control::EndingJobs::kAllKilled + 1s;  ///< as in jobs.cpp

}  // namespace

Agent::Agent(Cluster& cluster, sim::NodeIndex self, NodeId id)
    : cluster_(cluster),
      self_index_(self),
      id_(id),
      leases_(cluster.lease_options(self), id),
      actors_(*this, *this, id),
      remote_(
          *this, [this] { return next_process_++; }, cluster.plan.carry_window),
      moves_(*this, store_, cluster.truth, cluster.shell_random(self), id, cluster.plan.trouble,
             cluster.plan.fan, cluster.plan.transfers) {
  Wire::self = id;
  references_.ask_of_bytes(
      [](const wire::Location&) { return true; });  // no disk, no writer that lies
}

Agent::~Agent() {
  ++truth().node_deaths;
  for (auto& [index, proc] : processes_) proc->process.reset();
}

Truth& Agent::truth() {
  return cluster_.truth;
}

// --- the machine

void Agent::arm(std::uint64_t id, Duration after) {
  env_->set_timer_by(id, env_->now() + std::max<Duration>(after, 1us));
}

void Agent::wake_agent() {
  has_input_ = true;
  if (in_pass_) return;
  const Duration late = cluster_.plan.late_passes ? Duration(random().below(3'000'000)) : 0us;
  if (late > 1ms) truth().mark(Mark::agent_pass_late);
  arm(kPass, Duration(1'000 + random().below(40'000)) + late);
}

void Agent::wake(ProcessIndex process, Duration after) {
  arm(kProcess + process.value, after);
}

void Agent::interrupt_at(ProcessIndex process, Time at) {
  env_->set_timer(kAlarm + process.value, env_->now() + (at - env_->up_time()));
}

bool Agent::goes_on(std::uint64_t timer) const {
  return timer >= kProcess;
}

bool Agent::counts_sleep(std::uint64_t timer) const {
  return timer >= kAlarm;
}

Time Agent::serves_until() const {
  if (over_ || !network_) return Time{};
  Time until(sleep_.up_at(network_->serves_until()));
  for (const auto& [index, proc] : processes_)
    if (proc->process && !proc->halted && actors_.hosts(index))
      until = std::max(until, proc->process->serves_until());
  return until;
}

bool Agent::stands_still() const {
  return cluster_.world.stopped_alone(self_index_);
}

void Agent::exit_process(ProcessIndex process) {
  if (Proc* proc = find_proc(process)) kill_process(*proc, "exited");
}

void Agent::killed_in_a_frame(ProcessIndex process) {
  Proc* proc = find_proc(process);
  if (proc == nullptr) return;
  ++truth().process_deaths;
  truth().mark(Mark::killed_in_a_frame);
  kill_process(*proc, "killed by signal 9");
}

void Agent::transmit(Packet packet) {
  const auto to = static_cast<sim::NodeIndex>(packet.to.low);
  env_->send(to, std::move(packet));
}

void Agent::on_start(sim::Env<Packet>& env) {
  env_ = &env;
  join(env);
  env_ = nullptr;
}

/// Asks control's door for admission, as a new process does. The answer allows it to register.
void Agent::join(sim::Env<Packet>& env) {
  Packet packet;
  packet.kind = Packet::Kind::join;
  packet.from = id_;
  packet.to = cluster_.control_id();
  env.send(0, std::move(packet));
  arm(kJoin, 700ms);
}

void Agent::open_network() {
  joined_ = true;
  agent::NetworkOptions options;
  options.self.id = id_;
  options.self.name = "n" + std::to_string(self_index_);
  options.self.resources = leases_.self_view().total;
  options.self.beside_control = self_index_ == 1;
  options.keys.public_key = key_of(id_);
  options.control.node = cluster_.control_id();
  options.control.key = key_of(cluster_.control_id());
  options.control.door = "tcp://sim:0";
  options.build_id = "sim";
  options.link = cluster_.link_options();
  if (cluster_.plan.small_backlog) {
    options.backlog_high = 2048;
    options.backlog_low = 512;
    options.batch = 1024;
    truth().mark(Mark::backlog_small);
  }
  const WireScope scope(*this);
  network_ = agent::Network::open(std::move(options), *this, env_->now()).value();
  if (cluster_.has_driver(self_index_)) add_driver(cluster_.next_driver());
}

void Agent::on_message(sim::Env<Packet>& env, sim::NodeIndex, Packet packet) {
  env_ = &env;
  if (!over_) {
    if (packet.kind == Packet::Kind::joined) {
      if (packet.to == id_ && !joined_) open_network();
    } else if (packet.kind == Packet::Kind::bulk || packet.kind == Packet::Kind::bulk_end) {
      if (packet.to == id_ && joined_) moves_.on_packet(packet, env.now());
    } else if (port != nullptr) {
      port->on_packet(packet, env.now());
    }
    if (joined_) wake_agent();
  }
  env_ = nullptr;
}

void Agent::on_connection(sim::Env<Packet>& env, sim::NodeIndex peer, bool up) {
  env_ = &env;
  if (!up && port != nullptr && !over_) {
    port->on_closed(peer, env.now());
    wake_agent();
  }
  env_ = nullptr;
}

void Agent::on_timer(sim::Env<Packet>& env, std::uint64_t id) {
  env_ = &env;
  if (!over_) {
    if (id == kPass) {
      pass();
    } else if (id == kJoin) {
      if (!joined_) join(env);
    } else if (id < kAlarm) {
      step_process(ProcessIndex::of(id - kProcess));
    } else {
      interrupt_process(ProcessIndex::of(id - kAlarm));
    }
  }
  if (over_) env.exit();
  env_ = nullptr;
}

void Agent::step_process(ProcessIndex index) {
  const auto found = processes_.find(index);
  if (found == processes_.end() || !found->second->process || found->second->halted) return;
  found->second->process->step();
}

void Agent::interrupt_process(ProcessIndex index) {
  const Proc* proc = find_proc(index);
  if (proc == nullptr || !proc->process || proc->halted) return;
  const bool stood = proc->process->stands_still();
  proc->process->interrupt();
  if (const bool stands = proc->process->stands_still(); cluster_.verbose() && stands != stood)
    log("the actor in process " + index.str() + (stands ? " stands still" : " goes on"));
}

// --- one pass of the loop

void Agent::pass() {
  in_pass_ = true;
  const Time now = env_->now();
  if (sleep_.slept(env_->up_time().time_since_epoch(), now)) network_->on_slept(now);
  network_->poll(now);
  halt_actors();
  release_answers();
  start_due();
  drain_rings();
  // No free and no settling while a dead process is not reaped. Its ring is unread and may hold a
  // count of a holder, or an adoption.
  const auto unread = [this] { return dead_ > 0; };
  for (const wire::Location& location :
       unread() ? std::vector<wire::Location>() : std::exchange(frees_, {})) {
    in_flight_refs_.gone(location);
    truth().check(store_.free(location), "an object is freed twice");
  }
  if (const auto deadline = leases_.next_deadline(); deadline && *deadline <= now)
    leases_.on_timer(now);
  actors_.on_tick(now);
  end_late_jobs(now);
  moves_.on_tick(now);
  reap();
  carry_out_leases();
  forget_ended_jobs();
  settle_again_ = !unread() && references_.settle();
  report(now);
  tell_pace(now);
  keep_in_touch(now);
  network_->flush(now);
  // The reference table asserts its own invariants at every change.
  if (++passes_ % 64 == 0) check_invariants();
  in_pass_ = false;
  if (over_) return;
  const bool again = settle_again_ || (!frees_.empty() && !unread()) || has_input_;
  const Time next = again ? now + 20us : next_deadline();
  if (next != Time::max()) arm(kPass, std::max<Duration>(next - now, 5us));
}

Time Agent::next_deadline() const {
  Time until = leases_.next_deadline().value_or(Time::max());
  until = std::min({until, network_->next_deadline(), moves_.next_deadline(),
                    reporting_.next_deadline(), actors_.next_deadline()});
  for (const auto& [number, job] : jobs_) until = std::min(until, job.end_by);
  if (cluster_.plan.slow_node != 0 && network_->epoch() != 0) until = std::min(until, next_pace_);
  if (starting_ + dead_ == 0) return until;
  for (const auto& [index, proc] : processes_) {
    if (proc->starts_at) until = std::min(until, *proc->starts_at);
    if (proc->reaped_at) until = std::min(until, *proc->reaped_at);
  }
  return until;
}

void Agent::check_invariants() {
  if (const auto broken = leases_.broken_invariant()) truth().fail("leases: " + *broken);
}

/// Reads the rings of living processes. The ring of a dead process is read in end(). Every
/// writer wakes this loop, so rings are skipped when nothing may have arrived. Proxy channels
/// with work are visited in every pass.
void Agent::drain_rings() {
  if (!std::exchange(has_input_, false) && !proxy_waits_) return;
  std::vector<ProcessIndex> all;
  for (const auto& [index, proc] : processes_)
    if (!proc->rings->to_agent.empty() && !proc->reaped_at) all.push_back(index);
  if (all.size() > 1 && random().chance(0.3)) std::reverse(all.begin(), all.end());
  for (const ProcessIndex index : all)
    if (const auto at = processes_.find(index); at != processes_.end())
      if (!at->second->reaped_at) drain_ring(*at->second);
  std::vector<ProxyKey> proxies;
  for (const auto& [key, proxy] : proxies_)
    if (proxy.has_work()) proxies.push_back(key);
  for (const ProxyKey& key : proxies)
    if (const auto at = proxies_.find(key); at != proxies_.end()) drain_proxy(at->second);
  proxy_waits_ = !proxies.empty();
}

void Agent::drain_ring(Proc& proc) {
  auto& ring = proc.rings->to_agent;
  while (!ring.empty()) {
    auto [message, payload] = std::move(ring.front());
    ring.pop_front();
    handle(proc, message, payload);
  }
}

void Agent::handle(Proc& from, wire::NodeMessage& message, BlobView payload) {
  const Time now = env_->now();
  std::visit(
      Cases{[&](wire::RequestLease& m) {
              const std::uint32_t elsewhere = remote_.outstanding(from.index, m.key);
              const std::uint32_t here = m.backlog - std::min(m.backlog, elsewhere);
              if (cluster_.verbose())
                log("process " + from.index.str() + " asks for " + std::to_string(m.backlog) +
                    " of " + m.key.str() + ", " + std::to_string(elsewhere) + " elsewhere");
              leases_.request(from.index, m.key, agent::demand_of(m.demand), here, now,
                              {.spilled = false, .dedicated = false, .job = from.job_number});
              if (m.backlog == 0) remote_.withdrawn(from.index, m.key);
              from.keys.insert(m.key);
            },
            [&](wire::LeaseReturned& m) {
              if (!remote_.lease_returned(from.index, m.lease)) leases_.returned(m.lease, now);
            },
            [&](wire::Blocked&) { leases_.blocked(from.index, now); },
            [&](wire::Unblocked&) { leases_.unblocked(from.index, now); },
            [&](wire::Promote& m) {
              counted(m.value);
              references_.promote(from.index, m.object, m.value, payload);
            },
            [&](wire::Fulfil& m) {
              counted(m.value);
              references_.fulfil(m.object, m.value, payload);
            },
            [&](wire::Hold& m) {
              references_.hold(m.object, m.process, m.delta, from.index);
              if (m.delta > 0)
                in_flight_refs_.counted(from.index, m.process, {m.frame, m.waiting}, m.object);
            },
            [&](wire::Arrived& m) {
              undo(from.index, in_flight_refs_.arrived(from.index, m.peer, m.frames));
              drop_written_since({from.index, m.peer});
            },
            [&](wire::Await& m) { references_.await(m.object, from.index, m.fetch); },
            [&](wire::Shutdown&) {
              if (from.driver) driver_gone(from, true);
            },
            [&](wire::CreateActor& m) {
              references_.stands_for(m.lifetime, m.actor, from.index);
              for (const wire::Value& argument : m.creation.arguments)
                wire::for_each_ref(argument,
                                   [&](ObjectId inner) { references_.hold(inner, kSelf, +1); });
              actors_.create(m, payload, from.job, from.index);
              cluster_.moment();
            },
            [&](wire::ActorCreated& m) { actors_.created(from.index, m); },
            [&](wire::WatchActor& m) { actors_.watch(m.actor, from.index); },
            [&](wire::KillActor& m) {
              actors_.kill(m.actor, m.may_restart, from.index);
              cluster_.moment();
            },
            [&](wire::FindActor& m) {
              actors_.find(from.index, m);
              cluster_.moment();
            },
            [&](wire::Adopt& m) {
              if (!store_.adopt(m.location)) return truth().fail("a freed object is adopted");
              if (in_flight_refs_.adopted(from.index, m.process != 0 ? m.process : from.index,
                                          {m.frame, m.waiting}, m.location))
                free(m.location);
            },
            [&](wire::Free& m) { free(m.location); }, [&](auto&) {}},
      message);
}

/// Records that the owner's record counts this value and will free it, even if the adoption is
/// read later.
void Agent::counted(const wire::Value& value) {
  if (value.kind == wire::Value::Kind::shared) in_flight_refs_.owned(value.location);
}

/// Takes back the counts and memory that a dead process gave to this one in frames that never
/// arrived.
void Agent::undo(ProcessIndex process, const agent::InFlightRefs::Undone& undone) {
  if (!undone.counts.empty() || !undone.free.empty()) truth().mark(Mark::in_flight_undone);
  for (const ObjectId object : undone.counts) references_.hold(object, process, -1);
  for (const wire::Location& location : undone.free) free(location);
  references_.forget(undone.forgotten);
}

// --- processes

Agent::Proc* Agent::find_proc(ProcessIndex index) {
  const auto found = processes_.find(index);
  return found == processes_.end() || found->second->reaped_at ? nullptr : found->second.get();
}

void Agent::send(Proc& to, wire::NodeMessage message, BlobView payload) {
  if (!to.process) return;
  to.rings->from_agent.emplace_back(std::move(message), Blob(payload.begin(), payload.end()));
  Duration late = Duration(random().below(60'000));
  if (cluster_.plan.late_rings && random().chance(0.05)) {
    late += Duration(random().below(20'000'000));
    truth().mark(Mark::ring_read_late);
  }
  wake(to.index, late);
}

void Agent::connect(Proc& a, Proc& b) {
  if (!a.process || !b.process || !a.peers.insert(b.index).second) return;
  b.peers.insert(a.index);
  auto channel = std::make_shared<Channel>();
  channel->capacity = cluster_.plan.ring_capacity;
  if (&a == &b) return a.process->connect(a.index, End::loop(channel), false, 0);
  a.process->connect(b.index, End(channel, 0), false, 0);
  b.process->connect(a.index, End(channel, 1), false, 0);
}

void Agent::start_worker(bool dedicated, JobNumber number) {
  if (jobs_.count(number) == 0) return leases_.worker_start_failed(env_->now(), dedicated, number);
  Job& job = jobs_.at(number);
  if (job.state != Job::State::ready) {
    job.waiting.push_back(dedicated);
    if (job.state == Job::State::unknown)
      network_->send_control(control::GetJob{job.number.value, job.id});
    job.state = Job::State::asked;
    return;
  }
  auto proc = std::make_unique<Proc>();
  proc->index = next_process_++;
  proc->dedicated = dedicated;
  proc->job = jobs_.at(number).id;
  proc->job_number = number;
  Duration takes = 1ms + Duration(random().below(8'000'000));
  if (random().chance(cluster_.fault_rate(cluster_.plan.slow_starts))) {
    takes += Duration(random().below(2'000'000'000));
    truth().mark(Mark::worker_start_slow);
  }
  if (random().chance(cluster_.fault_rate(cluster_.plan.failed_starts))) {
    proc->start_fails = true;
    truth().mark(Mark::worker_start_fails);
  }
  proc->starts_at = env_->now() + takes;
  const ProcessIndex index = proc->index;
  processes_.try_emplace(index, std::move(proc));
  count_processes();
}

/// Counts processes that are starting or dead, so that passes without any skip the search for
/// them.
void Agent::count_processes() {
  starting_ = dead_ = 0;
  for (const auto& [index, proc] : processes_) {
    starting_ += proc->starts_at ? 1u : 0u;
    dead_ += proc->reaped_at ? 1u : 0u;
  }
}

void Agent::start_due() {
  if (starting_ == 0) return;
  const Time now = env_->now();
  std::vector<ProcessIndex> due;
  for (const auto& [index, proc] : processes_)
    if (proc->starts_at && *proc->starts_at <= now) due.push_back(index);
  for (const ProcessIndex index : due) {
    Proc& proc = *processes_.find(index)->second;
    if (proc.start_fails) {
      worker_gone(proc);
      continue;
    }
    proc.starts_at.reset();
    count_processes();
    proc.attached = true;
    const std::uint64_t high = random()();
    proc.process = std::make_unique<Process>(*this, proc.rings, index, false, high);
    if (Random dice(high); dice.chance(cluster_.fault_rate(cluster_.plan.in_flight_kills)))
      proc.process->never_sends(1 + dice.below(8));
    leases_.worker_started(index, now, proc.dedicated, proc.job_number);
    if (const Job& job = jobs_.at(proc.job_number); job.ended) drop_lease_requests(job);
  }
}

/// Ends a process by SIGKILL or by its own exit. Its written messages stay, and the agent learns
/// of the death up to 3 ms later.
void Agent::kill_process(Proc& proc, const std::string& why, bool fault) {
  if (proc.reaped_at) return;
  if (fault) ++truth().process_deaths;
  if (fault && proc.process && random().chance(0.4) && proc.process->never_sent_the_last())
    truth().mark(Mark::killed_in_a_frame);
  proc.starts_at.reset();
  cluster_.graveyard.push_back(std::move(proc.process));
  proc.reason = why;
  proc.reaped_at = env_->now() + Duration(random().below(3'000'000));
  count_processes();
  wake_agent();
}

void Agent::reap() {
  if (dead_ == 0) return;
  const Time now = env_->now();
  std::vector<ProcessIndex> dead;
  for (const auto& [index, proc] : processes_)
    if (proc->reaped_at && *proc->reaped_at <= now) dead.push_back(index);
  for (const ProcessIndex index : dead) worker_gone(*processes_.find(index)->second);
}

void Agent::worker_gone(Proc& proc) {
  if (!proc.attached && !proc.driver) {
    leases_.worker_start_failed(env_->now(), proc.dedicated, proc.job_number);
    if (proc.reason.empty()) proc.reason = "it ended before it said hello";
  }
  end(proc);
}

void Agent::end(Proc& proc) {
  const ProcessIndex index = proc.index;
  const Time now = env_->now();
  if (cluster_.verbose()) log("process " + index.str() + " is dead: " + proc.reason);
  proc.reaped_at.reset();  // find_proc() must see it while its last messages are read
  drain_ring(proc);
  for (auto at = proxies_.lower_bound({index, kSelf});
       at != proxies_.end() && at->first.first == index;)
    drain_proxy((at++)->second, true);
  check_unsent(proc);
  closed_.erase(closed_.lower_bound({index, kSelf}),
                closed_.lower_bound({ProcessIndex::of(index.value + 1), kSelf}));
  proc.reaped_at = now;
  if (proc.driver) driver_gone(proc, false);
  ErrorInfo info;
  info.code = Code::worker_died;
  info.message = proc.reason;
  const Error reason(std::move(info));
  if (actors_.hosts(index)) {
    cluster_.moment();
    cluster_.slow_news(self_index_);
  }
  for (const ProcessIndex peer : proc.peers) {
    if (const auto at = processes_.find(peer); at != processes_.end() && peer != index)
      at->second->peers.erase(index);  // a dead peer that is not buried yet, too
    if (Proc* other = find_proc(peer)) send(*other, wire::PeerDied{index, proc.reason});
  }
  remote_.process_died(index, {proc.reason});
  actors_.worker_died(index, reason);
  leases_.worker_died(index, now);
  leases_.owner_died(index, now);
  references_.process_died(index, reason);
  store_.process_died(index);
  const agent::InFlightRefs::Died given = in_flight_refs_.died(index, proc.peers);
  for (const wire::Location& location : given.free) free(location);
  for (const ProcessIndex to : given.asked)
    if (proc.peers.count(to) == 0) undo(to, in_flight_refs_.arrived(to, index, 0));
  for (const ProcessIndex dead : given.forgotten) references_.forget(dead);
  processes_.erase(index);
  count_processes();
}

void Agent::carry_out_leases() {
  for (auto events = leases_.take_events(); !events.empty(); events = leases_.take_events())
    for (auto& event : events)
      std::visit(Cases{[&](scheduling::StartWorker& e) { start_worker(e.dedicated, e.job); },
                       [&](scheduling::StopWorker& e) { end_worker(e.worker); },
                       [&](scheduling::Granted& grant) {
                         Proc* worker = find_proc(grant.worker);
                         if (grant.owner == kSelf && worker == nullptr)
                           return actors_.worker_ended_early(grant.key.value);
                         if (grant.owner == kSelf) {
                           waiting_lives_.erase(grant.key.value);
                           actor_leases_[grant.key.value] = grant.lease;
                           return actors_.worker_ready(grant.key.value, grant.worker, grant.gpus);
                         }
                         if (worker == nullptr)  // the lease table learns of the death next
                           return remote_.request_again(grant.owner, grant.key);
                         if (remote_.is_proxy_process(grant.owner))
                           return remote_.granted_here(grant.owner, grant.key, grant.lease,
                                                       grant.worker, grant.gpus);
                         Proc* owner = find_proc(grant.owner);
                         if (owner == nullptr) return leases_.returned(grant.lease, env_->now());
                         connect(*owner, *worker);
                         send(*owner, wire::LeaseGranted{grant.key, grant.lease, grant.worker, {}});
                       },
                       [&](scheduling::Refused& e) {
                         if (e.owner == kSelf)
                           actors_.no_worker(e.key.value, Error(Code::infeasible, e.why));
                         else if (remote_.is_proxy_process(e.owner))
                           remote_.refused_here(e.owner, e.key, e.why);
                         else if (Proc* owner = find_proc(e.owner))
                           send(*owner, wire::LeaseRefused{e.key, e.why});
                       },
                       [&](scheduling::ReclaimLease& e) {
                         if (remote_.is_proxy_process(e.owner))
                           remote_.reclaim_here(e.owner, e.lease);
                         else
                           reclaim(e.owner, e.lease);
                       },
                       [&](scheduling::Spilled& e) {
                         Proc* owner = find_proc(e.owner);
                         truth().mark(Mark::spilled);
                         if (owner != nullptr)
                           remote_.spilled(e.owner, e.key, e.node, agent::wire_demand(e.demand),
                                           owner->job, e.no_faster);
                       },
                       // Processes of this world are never silent and alive.
                       [&](scheduling::AskWorker&) {},
                       [&](scheduling::LeaseLost& e) { remote_.lease_lost(e.lease); }},
                 event);
}

void Agent::report(Time now) {
  if (network_->epoch() == 0 || !reporting_.due(now)) return;
  control::NodeReport report;
  report.view = leases_.self_view();
  report.workers = static_cast<std::uint32_t>(leases_.worker_count());
  if (reporting_.is_news(report, leases_.spilled_here(), now)) network_->send_control(report);
}

/// Sends control the run times that workers would report. While faults strike, tasks of the
/// plan's slow node take twenty times as long.
void Agent::tell_pace(Time now) {
  const sim::NodeIndex slow = cluster_.plan.slow_node;
  if (slow == 0 || now < next_pace_ || network_->epoch() == 0) return;
  next_pace_ = now + 500ms;
  const bool takes_long = slow == self_index_ && cluster_.world.faulting();
  constexpr wire::FunctionKey kFunction{1, 1};
  constexpr std::uint64_t kRan = 100'000'000;
  network_->send_control(control::NodePace{{{kFunction, 10, takes_long ? 20 * kRan : kRan}}});
}

void Agent::keep_in_touch(Time now) {
  if (now < next_touch_) return;
  next_touch_ = now + 1s;
  for (const NodeId node : known_nodes_)
    network_->keep_in_touch(node,
                            remote_.talks_to(node) || references_.imports_from(index_of(node)));
}

// --- jobs

Agent::Job& Agent::job_of(JobId id) {
  const auto [at, fresh] = job_numbers_.try_emplace(id);
  if (fresh) at->second = ++next_job_;
  Job& job = jobs_[at->second];
  job.id = id;
  job.number = at->second;
  return job;
}

/// Starts a driver. It is welcome once control knows its job.
void Agent::add_driver(std::uint64_t number) {
  Job& job = job_of(JobId{id_.high, id_.low << 32 | number});
  auto proc = std::make_unique<Proc>();
  proc->index = next_process_++;
  proc->driver = true;
  proc->job = job.id;
  proc->job_number = job.number;
  job.driver = proc->index;
  job.state = Job::State::ready;
  job.record.id = job.id;
  job.record.name = "sim";
  job.record.node = id_;
  const ProcessIndex index = proc->index;
  processes_.try_emplace(index, std::move(proc));
  start_job(job);
}

void Agent::start_job(Job& job) {
  job.described = true;
  if (network_->epoch() == 0) return;  // sent on registration instead
  job.record.epoch = network_->epoch();
  network_->send_control(control::StartJob{id_, job.number.value, job.record});
}

void Agent::driver_gone(Proc& driver, bool finished) {
  const auto at = jobs_.find(driver.job_number);
  if (at == jobs_.end() || at->second.driver != driver.index) return;
  Job& job = at->second;
  job.driver = 0;
  control::ToControl end = control::FinishJob{job.id};
  if (!finished) end = control::DriverDied{job.id, driver.reason};
  network_->send_control(end);
  driver_ends_.push_back(std::move(end));
  if (driver_ends_.size() > kMaxDriverEnds) driver_ends_.pop_front();
  end_tasks(job);
  job.end_by = env_->now() + kJobEnds;
  cluster_.moment();
}

void Agent::on_registered() {
  for (auto& [number, job] : jobs_) {
    if (job.driver != 0 && job.described) start_job(job);
    if (job.state == Job::State::asked)
      network_->send_control(control::GetJob{job.number.value, job.id});
  }
  for (const control::ToControl& end : driver_ends_) network_->send_control(end);
}

void Agent::on_job_info(const control::JobInfo& info) {
  const auto at = jobs_.find(JobNumber::of(info.request));
  if (at == jobs_.end() || at->second.state != Job::State::asked) return;
  Job& job = at->second;
  job.state = Job::State::ready;
  // After its end, a job has workers only for its detached actors.
  if (!info.job || info.job->state != control::JobState::running) end_job(job.id);
  for (const bool dedicated : std::exchange(job.waiting, {})) start_worker(dedicated, job.number);
}

bool Agent::has_purpose(const Proc& worker) const {
  return actors_.hosts(worker.index) || (!worker.attached && worker.dedicated);
}

void Agent::drop_lease_requests(const Job& job) {
  leases_.job_ended(job.number, env_->now());
  remote_.refuse_job(job.id, "its job has ended", false);
}

void Agent::end_tasks(const Job& job) {
  for (const auto& [index, proc] : processes_) {
    if (proc->job_number != job.number || proc->reaped_at) continue;
    if (proc->driver || !has_purpose(*proc)) kill_process(*proc, "its job has ended");
  }
}

void Agent::end_late_jobs(Time now) {
  std::vector<JobId> late;
  for (const auto& [number, job] : jobs_)
    if (job.end_by <= now) late.push_back(job.id);
  for (const JobId id : late) end_job(id);
}

void Agent::end_job(JobId id) {
  const auto number = job_numbers_.find(id);
  if (number == job_numbers_.end()) return;
  Job& job = jobs_.at(number->second);
  job.ended = true;
  job.end_by = Time::max();
  end_tasks(job);
  drop_lease_requests(job);
  std::erase_if(job.waiting, [&](bool dedicated) {
    if (!dedicated) leases_.worker_start_failed(env_->now(), dedicated, job.number);
    return !dedicated;
  });
}

void Agent::forget_ended_jobs() {
  for (auto at = jobs_.begin(); at != jobs_.end();) {
    Job& job = at->second;
    const bool merely_named = job.state == Job::State::unknown && !leases_.is_wanted(job.number);
    bool needed = !job.ended && !merely_named;
    for (const auto& [life, number] : waiting_lives_) needed = needed || number == job.number;
    needed = needed || std::any_of(processes_.begin(), processes_.end(), [&](const auto& entry) {
               return entry.second->job_number == job.number;
             });
    if (needed) {
      ++at;
      continue;
    }
    for (const bool dedicated : std::exchange(job.waiting, {}))
      leases_.worker_start_failed(env_->now(), dedicated, job.number);
    if (leases_.is_wanted(job.number)) drop_lease_requests(job);
    job_numbers_.erase(job.id);
    at = jobs_.erase(at);
  }
}

// --- faults and what is seen from outside

bool Agent::strike_process(sim::Env<Packet>& env, Mark kind) {
  if (over_ || !joined_) return false;
  env_ = &env;
  std::vector<Proc*> fit;
  for (auto& [index, proc] : processes_) {
    if (proc->reaped_at) continue;
    const bool lives = proc->process != nullptr;
    const bool actor = lives && proc->process->program().hosts_actor();
    const bool blocked = lives && proc->process->is_blocked();
    const bool is_fit = kind == Mark::kill_driver            ? proc->driver && lives
                        : proc->driver                       ? false
                        : kind == Mark::kill_starting_worker ? proc->starts_at.has_value()
                        : kind == Mark::kill_actor_worker    ? actor
                        : kind == Mark::kill_blocked_worker  ? blocked
                                                             : lives && !actor;
    if (is_fit) fit.push_back(proc.get());
  }
  if (!fit.empty()) {
    kill_process(*fit[random().below(fit.size())], "killed by signal 9", true);
    truth().mark(kind);
  }
  env_ = nullptr;
  return !fit.empty();
}

bool Agent::strike_report(sim::Env<Packet>& env) {
  if (over_ || !joined_) return false;
  env_ = &env;
  reporting_.forget();
  wake_agent();
  truth().mark(Mark::report_burst);
  env_ = nullptr;
  return true;
}

bool Agent::strike_talk(sim::Env<Packet>& env) {
  if (over_ || !joined_ || known_nodes_.empty()) return false;
  env_ = &env;
  // Prefers a node to which frames are on their way.
  std::vector<NodeId> fit;
  for (const NodeId node : known_nodes_)
    if (!network_->delivered(node)) fit.push_back(node);
  if (fit.empty()) fit.assign(known_nodes_.begin(), known_nodes_.end());
  network_->drop(fit[random().below(fit.size())], "simulated: it sent what cannot be read");
  wake_agent();
  truth().mark(Mark::talk_dropped);
  env_ = nullptr;
  return true;
}

/// Kills an idle worker just before it would be granted, while its agent does not know of the
/// death.
void Agent::kill_an_idle_worker() {
  if (!random().chance(cluster_.fault_rate(cluster_.plan.idle_kills))) return;
  for (auto& [index, proc] : processes_) {
    if (proc->driver || proc->reaped_at || !proc->process || proc->dedicated) continue;
    if (proc->process->program().is_busy() || proc->process->program().hosts_actor()) continue;
    kill_process(*proc, "killed by signal 9", true);
    return truth().mark(Mark::kill_idle_at_request);
  }
}

std::vector<NodeId> Agent::nodes() const {
  std::vector<NodeId> all(known_nodes_.begin(), known_nodes_.end());
  all.push_back(id_);
  std::sort(all.begin(), all.end());
  return all;
}
bool Agent::faulting() const {
  return cluster_.world.faulting();
}
bool Agent::actor_lives(ActorId actor) {
  return cluster_.actor_lives(actor);
}

std::string Agent::outlived() {
  return cluster_.outlived();
}

bool Agent::lives_beside(ActorId actor) {
  return cluster_.lives_beside(actor, self_index_);
}

bool Agent::next_life_waits() {
  return cluster_.next_life_waits(self_index_);
}

bool Agent::has_process_of(ActorId actor, std::uint64_t newest) const {
  return std::any_of(processes_.begin(), processes_.end(), [&](const auto& entry) {
    return entry.second->process && entry.second->process->program().actor() == actor &&
           entry.second->process->program().incarnation() <= newest;
  });
}

/// Returns whether this node has a driver and an actor that others can find by its name.
bool Agent::has_callers_of_actors() const {
  bool driver = false, actor = false;
  for (const auto& [index, proc] : processes_) {
    if (!proc->process) continue;
    driver = driver || proc->driver;
    actor = actor || cluster_.truth.acknowledged.count(proc->process->program().actor()) != 0;
  }
  return driver && actor;
}

void Agent::end_actor(sim::Env<Packet>& env, ActorId actor) {
  env_ = &env;
  actors_.kill(actor, false);
  wake_agent();
  env_ = nullptr;
}

bool Agent::drivers_done() const {
  for (const auto& [index, proc] : processes_)
    if (proc->driver) return false;
  return joined_;
}

}  // namespace troupe::sim::cluster
