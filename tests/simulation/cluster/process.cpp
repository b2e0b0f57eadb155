/// The loop of a simulated process: messages of its agent and its peers, leases, calls and the
/// actor lease. It stands for client/engine*.cpp.
#include "tests/simulation/cluster/process.hpp"

#include "tests/simulation/cluster/program.hpp"
#include "troupe/runtime/base/assert.hpp"
#include "troupe/runtime/client/actor_lease_timer.hpp"
#include "troupe/runtime/scheduling/policy.hpp"
#include "troupe/runtime/wire/cases.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <algorithm>
#include <cstring>
#include <tuple>

namespace troupe::sim::cluster {
namespace {

using namespace std::chrono_literals;

using wire::Cases;

/// Keys from here on stand for demands that name a node.
constexpr std::uint64_t kNodeKeys = 16;

}  // namespace

void append(wire::Value& value, BlobView bytes, Blob& payload) {
  payload.resize((payload.size() + 15) & ~std::size_t{15});
  value.payload_offset = static_cast<std::uint32_t>(payload.size());
  value.payload_size = static_cast<std::uint32_t>(bytes.size());
  payload.insert(payload.end(), bytes.begin(), bytes.end());
}

Blob bytes_of(const Spec& spec) {
  Blob bytes(sizeof spec);
  std::memcpy(bytes.data(), &spec, sizeof spec);
  return bytes;
}
static Spec spec_of(const detail::Call& call) {
  return spec_of(BlobView(call.bytes.data(), call.bytes.size()));
}
Spec spec_of(BlobView bytes) {
  Spec spec;
  if (bytes.size() == sizeof spec) std::memcpy(&spec, bytes.data(), sizeof spec);
  return spec;
}

Rings::Rings() = default;
Rings::~Rings() = default;

Process::Process(Machine& machine, std::shared_ptr<Rings> rings, ProcessIndex index, bool driver,
                 std::uint64_t high)
    : machine_(machine), rings_(std::move(rings)), index_(index), driver_(driver), high_(high) {
  own_objects();
  program_ = std::make_unique<Program>(*this);
}

Process::~Process() {
  dying_ = true;
  for (auto& [index, peer] : peers_) peer.end.let_go();
  program_.reset();
}

bool Process::never_sent_the_last() {
  for (auto& [index, peer] : peers_)
    if (!peer.remote && peer.end.take_last()) return true;
  return false;
}

// --- the loop

template <class Body>
void Process::alive(const Body& body) {
  try {
    body();
  } catch (const Killed&) {
    for (Entry* entry : std::exchange(released_, {})) delete entry;
    machine_.killed_in_a_frame(index_);
  }
}

wire::Hold Process::in_flight_hold(const Peer& to) {
  const wire::Hold hold = to.hold();
  gives_ = hold.frame != 0;
  return hold;
}

void Process::put_frame(Peer& peer, Frame frame) {
  const bool gives = std::exchange(gives_, false);
  if (gives && counts_left_ != 0 && machine_.faulting() && --counts_left_ == 0) {
    dying_ = true;
    throw Killed{};
  }
  peer.end.send(std::move(frame));
}

void Process::step() {
  alive([this] { turn(); });
}

void Process::turn() {
  const Time now = machine_.now();
  drain_agent();
  for (auto at = peers_.begin(); at != peers_.end();) {
    const ProcessIndex process = at->first;
    drain_peer(at->second);
    at = peers_.upper_bound(process);  // the peer may be gone
  }
  if (now >= next_tick_) {
    const std::size_t before = tasks_.second_attempts();
    next_tick_ = tasks_.tick(now);
    if (tasks_.second_attempts() != before) machine_.truth().mark(Mark::second_attempt);
  }
  collect();
  if (may_go_on()) {
    program_->run();
    collect();
    if (shutdown_ && live_calls() == 0) return machine_.exit_process(index_);
    if (shutdown_ && !driver_ && !program_->is_busy()) block(true);
  }
  if (next_tick_ != Time::max()) machine_.wake(index_, std::max<Duration>(next_tick_ - now, 10us));
}

// --- the actor lease

// Stands for client/actor_lease_timer.cpp, whose alarm is a timer of the kernel here. The
// simulation does not play that the I/O thread moves the alarm ahead while user code runs.

void Process::begin_actor_lease() {
  if (machine_.actor_lease_word() != client::kServesAlways) interrupt();
}

void Process::interrupt() {
  const client::ActorLease lease =
      client::actor_lease_at(machine_.actor_lease_word(), machine_.up_time());
  const bool stood = std::exchange(stands_still_, !lease.may);
  alarm_ = lease.alarm;
  if (lease.may) machine_.interrupt_at(index_, alarm_);
  if (lease.may && stood) machine_.wake(index_, {});
  if (!lease.may && !stood && machine_.stands_still())
    machine_.truth().mark(Mark::stood_still_alone);
}

bool Process::may_go_on() {
  if (machine_.up_time() >= alarm_) interrupt();
  return !stands_still_;
}

void Process::connect(ProcessIndex peer, End end, bool remote, ProcessIndex holder) {
  Peer& made = peers_[peer];
  made.process = peer;
  made.remote = remote;
  made.holder = holder != 0 ? holder : peer;
  made.end = std::move(end);
  made.end.on_wake([this] { machine_.wake(index_, Duration(machine_.random().below(60'000))); });
  alive([this] {
    for (const auto& granted : std::exchange(pending_grants_, {})) grant(granted);
    for (const auto& update : std::exchange(pending_updates_, {})) on_actor_update(update);
  });
}

void Process::tell(wire::NodeMessage message, Blob payload) {
  rings_->to_agent.emplace_back(std::move(message), std::move(payload));
  machine_.wake_agent();
}

void Process::drain_agent() {
  while (!rings_->from_agent.empty()) {
    auto [message, payload] = std::move(rings_->from_agent.front());
    rings_->from_agent.pop_front();
    on_agent(message, payload);
  }
}

void Process::drain_peer(Peer& peer) {
  const ProcessIndex process = peer.process;
  if (peer.end.waiting() > 0 && peer.end.flush()) {
    tasks_.writable(process, machine_.now());
    actors_.writable(process);
  }
  for (Peer* at = peer_of(process); at != nullptr; at = peer_of(process)) {
    auto frame = at->end.receive();
    if (!frame) return;
    on_frame(*at, *frame);
  }
}

Process::Peer* Process::peer_of(ProcessIndex process) {
  const auto found = peers_.find(process);
  return found == peers_.end() ? nullptr : &found->second;
}

// --- the agent's messages

void Process::on_agent(wire::NodeMessage& message, BlobView payload) {
  const Time now = machine_.now();
  std::visit(
      Cases{[&](wire::PeerDied& m) { on_peer_died(m); }, [&](wire::LeaseGranted& m) { grant(m); },
            [&](wire::LeaseRefused& m) { tasks_.refused(m.key, Error(Code::infeasible, m.why)); },
            [&](wire::LeaseReclaim& m) {
              machine_.truth().mark(Mark::reclaimed);
              tasks_.reclaim(m.lease, now);
            },
            [&](wire::Ready& m) {
              const auto found = table_.find(m.object);
              const ObjectHandle handle =
                  found == table_.end() ? ObjectHandle{} : keep(*found->second);
              if (!handle) return give_back(m.value);
              settle(entry_of(handle), m.value, payload);
            },
            [&](wire::StartActor& m) {
              starts_.emplace_back(std::move(m), Blob(payload.begin(), payload.end()));
            },
            [&](wire::ActorUpdate& m) { on_actor_update(m); },
            [&](wire::FoundActor& m) {
              if (!m.found) return program_->on_found(m.request, {}, {});
              bool fresh = false;
              ObjectHandle handle = adopt(m.lifetime, fresh);
              if (!fresh) tell(wire::Hold{m.lifetime, index_, -1});
              program_->on_found(m.request, m.actor, std::move(handle));
            },
            [&](wire::Shutdown&) { shutdown_ = true; }, [&](auto&) {}},
      message);
}

void Process::grant(const wire::LeaseGranted& granted) {
  if (dead_peers_.count(granted.worker) != 0) return;
  if (peer_of(granted.worker) == nullptr) {
    pending_grants_.push_back(granted);
    return;
  }
  tasks_.granted(granted.key, granted.lease, granted.worker, machine_.now());
  next_tick_ = std::min(next_tick_, machine_.now() + 1ms);
}

void Process::on_actor_update(const wire::ActorUpdate& update) {
  if (update.state == wire::ActorState::alive && peer_of(update.worker) == nullptr) {
    if (dead_peers_.count(update.worker) == 0) pending_updates_.push_back(update);
    return;
  }
  actors_.update(update);
  if (update.state != wire::ActorState::alive) return;
  const ProcessIndex before = std::exchange(homes_[update.actor], update.worker);
  if (before != update.worker && peer_of(before) != nullptr && driver_ &&
      machine_.next_life_waits())
    program_->kill_now(update.actor);
}

void Process::on_peer_died(const wire::PeerDied& message) {
  std::erase_if(pending_grants_, [&](const auto& grant) { return grant.worker == message.peer; });
  std::erase_if(pending_updates_,
                [&](const auto& update) { return update.worker == message.peer; });
  Peer* peer = peer_of(message.peer);
  dead_peers_.insert(message.peer);
  if (peer == nullptr) return tell(wire::Arrived{message.peer, 0});
  drain_peer(*peer);
  if (!peer->remote) tell(wire::Arrived{message.peer, peer->end.received()});
  const std::uint64_t started =
      message.started != wire::PeerDied::kUnknown ? message.started : peer->end.peer_started();
  ErrorInfo info;
  const bool hosts_actor = actors_.has_worker(message.peer);
  info.code = hosts_actor ? Code::actor_died : Code::worker_died;
  info.outcome = Outcome::unknown;
  info.message = "the process that ran it died: " + message.reason;
  const Error error(info);
  // A process that died alone may have died of the task that it ran. One that died with its node
  // has not.
  const bool alone = message.reason.rfind("killed", 0) == 0;
  tasks_.worker_died(message.peer, started, error, alone, machine_.now());
  actors_.worker_died(message.peer, started, error);
  std::erase_if(incoming_, [&](const Incoming& call) {
    if (call.from != message.peer) return false;
    drop_refs(call.call);
    return true;
  });
  peer->end.let_go();
  Peer gone = std::move(*peer);
  peers_.erase(message.peer);
  if (!gone.remote) return;
  for (const Frame& frame : gone.end.take_waiting())
    wire::for_each_ref(frame.message, [&](ObjectId id) {
      wire::Hold hold = gone.hold();
      hold.object = id;
      hold.delta = -1;
      tell(hold);
    });
  tell(wire::Arrived{message.peer, gone.end.received()});
}

// --- peers' messages

void Process::on_frame(Peer& peer, Frame& frame) {
  const ProcessIndex process = peer.process;
  std::visit(Cases{[&](wire::Call& m) {
                     const bool unwanted = blocked_ && m.actor_low == 0;
                     incoming_.push_back({process, std::move(m), std::move(frame.payload)});
                     if (unwanted) hand_back_unstarted();
                   },
                   [&](wire::Reply& m) { on_reply(peer, m, frame.payload); },
                   [&](wire::HandBack& m) {
                     machine_.truth().mark(Mark::handed_back);
                     tasks_.handed_back(process, m.first, m.count, machine_.now());
                     next_tick_ = std::min(next_tick_, machine_.now() + 1ms);
                   },
                   [&](wire::Recall&) { hand_back_unstarted(); }},
             frame.message);
}

void Process::on_reply(Peer& peer, const wire::Reply& reply, BlobView payload) {
  const Time now = machine_.now();
  std::vector<ObjectHandle> results;
  client::Task* task = tasks_.in_flight(peer.process, reply.sequence);
  client::ActorCall* call =
      task == nullptr ? actors_.in_flight(peer.process, reply.sequence) : nullptr;
  if (task != nullptr) {
    if (reply.value.kind == Kind::error && tasks_.yields(peer.process, reply.sequence, now)) return;
    if (reply.value.kind == Kind::error && task->request &&
        std::find(task->request->retry_on.begin(), task->request->retry_on.end(),
                  reply.value.error->type) != task->request->retry_on.end() &&
        tasks_.retry(peer.process, reply.sequence, now)) {
      machine_.truth().mark(Mark::retried);
      return;
    }
    results.assign(task->results.begin(), task->results.end());
  } else if (call != nullptr) {
    results.assign(call->results.begin(), call->results.end());
  } else {
    return give_back(reply.value);
  }
  if (reply.value.kind == Kind::error) {
    Error error(*reply.value.error);
    if (task != nullptr) error = client::TaskManager::of_all_attempts(*task, error);
    if (task != nullptr && !results.empty())
      machine_.truth().task_ended(spec_of(task->call), task->attempt, &error);
    for (const auto& result : results) settle_error(entry_of(result), error);
  } else if (reply.index < results.size() && !entry_of(results[reply.index]).ready) {
    if (task != nullptr) machine_.truth().task_ended(spec_of(task->call), task->attempt, nullptr);
    settle(entry_of(results[reply.index]), reply.value, payload);
  } else {
    give_back(reply.value);
  }
  if (!reply.last) return;
  if (task != nullptr)
    tasks_.ended(peer.process, reply.sequence, Duration(reply.ran_ns), now);
  else
    actors_.ended(peer.process, reply.sequence);
}

void Process::hand_back_unstarted() {
  std::map<ProcessIndex, std::pair<std::uint64_t, std::uint64_t>> ranges;
  std::deque<Incoming> kept;
  for (auto& call : incoming_) {
    if (call.call.actor_low != 0) {
      kept.push_back(std::move(call));
      continue;
    }
    const auto [at, fresh] = ranges.try_emplace(call.from, call.call.sequence, call.call.sequence);
    if (!fresh) at->second.second = call.call.sequence;
    drop_refs(call.call);
  }
  incoming_.swap(kept);
  for (const auto& [caller, range] : ranges)
    if (Peer* peer = peer_of(caller))
      peer->end.send({wire::HandBack{range.first, range.second - range.first + 1}, {}});
}

// --- TaskManager::Out, ActorCalls::Out

bool Process::send_call(ProcessIndex worker, const detail::Call& call, std::uint64_t actor_low,
                        std::uint32_t attempt, std::uint32_t results, std::uint64_t& sequence) {
  Peer* peer = peer_of(worker);
  TROUPE_ASSERT(peer != nullptr, "a call goes to a worker with a channel");
  if (peer->end.waiting() > 0) return false;
  Blob payload;
  wire::Call message = encode_call(call, *peer, payload);
  message.sequence = peer->sent + 1;
  message.actor_low = actor_low;
  message.attempt = attempt;
  message.results = results;
  put_frame(*peer, {std::move(message), std::move(payload)});
  sequence = ++peer->sent;
  return true;
}

bool Process::send(ProcessIndex worker, client::Task& task) {
  if (task.had_second_attempt) machine_.truth().second_attempt(spec_of(task.call));
  return send_call(worker, task.call, 0, task.attempt, 1, task.sequence);
}
bool Process::send(ProcessIndex worker, client::ActorCall& call) {
  return send_call(worker, call.call, call.actor.low, 1, 1, call.sequence);
}
void Process::request_lease(LeaseKey key, std::uint32_t backlog) {
  wire::ResourceDemand demand;
  if (key == 1) demand.cpus = 5'000;
  if (key == 2) demand.placement = 2;  // spread
  if (key == 3) demand.resources = {{"gold", 10'000}};
  if (key >= kNodeKeys) {
    demand.cpus = 2'000;
    demand.placement = static_cast<std::uint8_t>(scheduling::Placement::node);
    std::tie(demand.node, demand.soft) = node_keys_.at(key.value - kNodeKeys);
  }
  tell(wire::RequestLease{key, backlog, demand});
  next_tick_ = std::min(next_tick_, machine_.now() + client::TaskManager::kAskAgain);
}
LeaseKey Process::key_of(NodeId node, bool soft) {
  machine_.truth().mark(Mark::placed_on_node);
  const std::pair<NodeId, bool> wanted{node, soft};
  const auto at = std::find(node_keys_.begin(), node_keys_.end(), wanted);
  const auto key = LeaseKey::of(kNodeKeys + static_cast<std::uint64_t>(at - node_keys_.begin()));
  if (at == node_keys_.end()) node_keys_.push_back(wanted);
  return key;
}
void Process::return_lease(LeaseId lease) {
  tell(wire::LeaseReturned{lease});
}
void Process::recall(ProcessIndex worker) {
  machine_.truth().mark(Mark::recalled);
  if (Peer* peer = peer_of(worker)) peer->end.send({wire::Recall{}, {}});
}
void Process::fail(client::Task& task, const Error& error) {
  machine_.truth().task_ended(spec_of(task.call), task.attempt, &error);
  for (const auto& result : task.results)
    if (!entry_of(result).ready) settle_error(entry_of(result), error);
}
void Process::watch(ActorId actor) {
  tell(wire::WatchActor{actor});
}
void Process::fail(client::ActorCall& call, const Error& error) {
  for (const auto& result : call.results)
    if (!entry_of(result).ready) settle_error(entry_of(result), error);
}

// --- calls

std::uint32_t Process::watch_arguments(const detail::Call& call,
                                       std::function<void(Entry&)> waiter) {
  std::uint32_t waiting = 0;
  for (const auto& argument : call.arguments) {
    if (!argument.object || entry_of(argument.object).ready) continue;
    ++waiting;
    entry_of(argument.object).waiters.push_back(waiter);
    need(entry_of(argument.object), false);
  }
  return waiting;
}

namespace {

const ErrorInfo* failed_argument(const detail::Call& call) {
  for (const auto& argument : call.arguments)
    if (argument.object && entry_of(argument.object).ready &&
        entry_of(argument.object).kind == Kind::error)
      return entry_of(argument.object).error.get();
  return nullptr;
}

/// Returns a call whose arguments are the spec with the refs inside it, then the objects whose
/// values the task needs.
detail::Call call_of(const Spec& spec, std::vector<ObjectHandle> arguments,
                     std::vector<ObjectHandle> refs) {
  detail::Call call;
  const Blob bytes = bytes_of(spec);
  call.bytes.assign(bytes.begin(), bytes.end());
  detail::Argument first;
  first.size = static_cast<std::uint32_t>(call.bytes.size());
  first.ref_count = static_cast<std::uint32_t>(refs.size());
  call.refs = std::move(refs);
  call.arguments.push_back(std::move(first));
  for (ObjectHandle& object : arguments) {
    detail::Argument argument;
    argument.object = std::move(object);
    call.arguments.push_back(std::move(argument));
  }
  return call;
}

}  // namespace

ObjectHandle Process::submit(const Spec& spec, std::vector<ObjectHandle> arguments,
                             std::vector<ObjectHandle> refs, LeaseKey key, int retries) {
  auto owned = std::make_unique<client::Task>();
  client::Task* task = owned.get();
  auto request = std::make_unique<detail::Request>();
  request->retry_on = {"flaky"};
  request->second_attempt = true;
  task->request = std::move(request);
  task->retries_left = retries;
  ObjectHandle result = create();
  Spec named = spec;
  named.submission = mixed(result.id().high, result.id().low);
  task->call = call_of(named, std::move(arguments), std::move(refs));
  machine_.truth().submitted(named, retries);
  machine_.truth().promise(result.id(), content_of(spec));
  ++machine_.truth().started_calls;
  if (const ErrorInfo* error = failed_argument(task->call)) {
    settle_error(entry_of(result), Error(*error));
    return result;
  }
  task->results.push_back(result);
  task->key = static_cast<std::uint32_t>(key.value);
  task->waiting = watch_arguments(task->call, [this, task](Entry& entry) {
    if (entry.kind == Kind::error)
      tasks_.argument_failed(*task, Error(*entry.error));
    else
      tasks_.argument_ready(*task, machine_.now());
  });
  // As in the engine, a call that waits for nothing is sent before a record of it is kept.
  const ProcessIndex worker = task->waiting == 0 ? tasks_.open_way(key) : 0;
  if (worker != 0 && send(worker, *task))
    tasks_.sent(std::move(owned), worker, machine_.now());
  else
    tasks_.submit(std::move(owned), machine_.now());
  next_tick_ = std::min(next_tick_, machine_.now() + (tasks_.live() > 1 ? 1ms : 20ms));
  machine_.wake(index_, next_tick_ - machine_.now());
  return result;
}

ObjectHandle Process::call(ActorId actor, const ObjectHandle& lifetime, const Spec& spec,
                           std::vector<ObjectHandle> arguments) {
  auto owned = std::make_unique<client::ActorCall>();
  client::ActorCall* pending = owned.get();
  pending->actor = actor;
  pending->lifetime = lifetime;
  pending->call = call_of(spec, std::move(arguments), {});
  ObjectHandle result = create();
  machine_.truth().promise(result.id(), content_of(spec));
  ++machine_.truth().started_calls;
  pending->results.push_back(result);
  if (const ErrorInfo* error = failed_argument(pending->call))
    pending->argument_error = std::make_shared<const Error>(*error);
  pending->waiting = watch_arguments(pending->call, [this, pending](Entry& entry) {
    if (entry.kind == Kind::error)
      actors_.argument_failed(*pending, Error(*entry.error));
    else
      actors_.argument_ready(*pending);
  });
  const ProcessIndex worker =
      pending->waiting == 0 && !pending->argument_error ? actors_.open_way(actor) : 0;
  if (worker != 0 && send(worker, *pending))
    actors_.sent(std::move(owned));
  else
    actors_.submit(std::move(owned));
  return result;
}

std::pair<ActorId, ObjectHandle> Process::spawn(const Spawn& options) {
  wire::CreateActor message;
  message.actor = ActorId{high_, ++next_actor_};
  ObjectHandle lifetime = create();
  mark_promoted(entry_of(lifetime));
  message.lifetime = lifetime.id();
  message.name = options.name;
  message.class_name = "Sim";
  message.detached = options.detached;
  message.get_if_exists = options.get_if_exists;
  message.max_restarts = options.max_restarts;
  message.restart_window_ns = 0;
  message.demand.cpus = 0;
  message.demand.resources = options.takes;
  Peer agent;  // the agent owns from here on what it keeps of the spawn
  agent.holder = 0;
  agent.remote = true;
  Blob payload;
  std::vector<ObjectHandle> arguments;
  if (options.argument) arguments.push_back(options.argument);
  message.creation =
      encode_call(call_of(options.constructor, std::move(arguments), {}), agent, payload);
  tell(std::move(message), std::move(payload));
  return {ActorId{high_, next_actor_}, std::move(lifetime)};
}

std::uint64_t Process::find(const std::string& name) {
  tell(wire::FindActor{++next_request_, name, ""});
  return next_request_;
}

void Process::kill(ActorId actor, bool may_restart) {
  tell(wire::KillActor{actor, may_restart});
  if (may_restart)
    actors_.ending_life(actor);
  else
    actors_.killed(actor);
}

void Process::created(ActorId actor, std::uint64_t incarnation, const Error* error) {
  tell(wire::ActorCreated{actor, incarnation, error != nullptr ? error->shared_info() : nullptr});
}

void Process::block(bool on) {
  if (blocked_ == on) return;
  if (on) {
    machine_.truth().mark(Mark::blocked);
    hand_back_unstarted();
  }
  blocked_ = on;
  tell(on ? wire::NodeMessage(wire::Blocked{}) : wire::NodeMessage(wire::Unblocked{}));
}

std::string Process::describe() const {
  return program_->describe() + (blocked_ ? ", blocked" : "") + ", " +
         std::to_string(incoming_.size()) + " incoming, " + std::to_string(tasks_.live()) +
         " tasks (" + std::to_string(tasks_.queued()) + " queued), " +
         std::to_string(actors_.live()) + " calls" + (shutdown_ ? ", ending" : "") +
         (starts_.empty() ? "" : ", to start");
}

void Process::finish() {
  tell(wire::Shutdown{"its driver is done"});
}

void Process::reply(const Incoming& call, const Outgoing& value, Duration ran) {
  Peer* peer = peer_of(call.from);
  if (peer == nullptr) return;
  wire::Reply message;
  message.sequence = call.call.sequence;
  message.ran_ns = static_cast<std::uint64_t>(ran.count());
  Blob payload;
  message.value = outgoing(value, *peer, payload);
  put_frame(*peer, {std::move(message), std::move(payload)});
}

wire::Call Process::encode_call(const detail::Call& call, const Peer& to, Blob& payload) {
  wire::Call message;
  message.function = {1, 1};
  for (const auto& argument : call.arguments) {
    if (argument.object) {
      message.arguments.push_back(outgoing(argument.object, to, payload));
      continue;
    }
    wire::Value value;
    value.kind = Kind::inline_bytes;
    append(value, BlobView(call.bytes.data() + argument.offset, argument.size), payload);
    for (std::uint32_t i = 0; i < argument.ref_count; ++i) {
      share(call.refs[argument.first_ref + i], to);
      value.refs.push_back(call.refs[argument.first_ref + i].id());
    }
    message.arguments.push_back(std::move(value));
  }
  return message;
}

}  // namespace troupe::sim::cluster
