#include "troupe/runtime/control/service.hpp"

#include <algorithm>
#include <bit>
#include <set>
#include <type_traits>

namespace troupe::control {
namespace {

std::optional<Error> error_of(const std::shared_ptr<const ErrorInfo>& info) {
  if (!info) return std::nullopt;
  return Error(*info);
}

}  // namespace

// --- start -------------------------------------------------------------------------------------

Result<std::unique_ptr<Service>> Service::open(Store& store, ServiceOptions options, Out& out,
                                               Time now) {
  auto members = Membership::recover(store, options.membership, now);
  if (!members) return members.error();
  std::vector<std::pair<NodeId, Epoch>> awaited;
  for (const NodeRecord& record : members->nodes())
    awaited.emplace_back(record.description.id, record.epoch);
  auto actors = Directory::recover(store, options.directory, std::move(awaited));
  if (!actors) return actors.error();
  auto jobs = Jobs::recover(store, options.jobs);
  if (!jobs) return jobs.error();
  auto values = KeyValues::recover(store, options.key_values);
  if (!values) return values.error();
  auto names = ObjectNames::recover(store);
  if (!names) return names.error();
  auto dead = DeadNodes::recover(store);
  if (!dead) return dead.error();
  auto admissions = Admissions::recover(store, options, now);
  if (!admissions) return admissions.error();
  std::unique_ptr<Service> service(
      new Service(store, std::move(options), out, now, std::move(*members), std::move(*actors),
                  std::move(*jobs), std::move(*values), std::move(*names), std::move(*dead),
                  std::move(*admissions)));
  service->begin(now);
  return service;
}

Service::Service(Store& store, ServiceOptions options, Out& out, Time now, Membership members,
                 Directory actors, Jobs jobs, KeyValues values, ObjectNames names, DeadNodes dead,
                 Admissions admissions)
    : store_(store),
      options_(std::move(options)),
      out_(out),
      members_(std::move(members)),
      actors_(std::move(actors)),
      jobs_(std::move(jobs)),
      values_(std::move(values)),
      names_(std::move(names)),
      dead_(std::move(dead)),
      admissions_(std::move(admissions)),
      slow_(options_.slow_nodes),
      gate_(options_.max_waiting_bytes),
      pages_(options_),
      placing_(options_, nodes_, actors_, now),
      nodes_version_(store.epoch() << 32),
      last_broadcast_(now - std::chrono::hours(1)) {}

/// Takes up what an earlier control left: nodes that will register again, and jobs whose node died
/// before their end was written.
void Service::begin(Time now) {
  for (const auto& [id, node] : admissions_.joined()) out_.admit(node);
  for (const NodeRecord& record : members_.nodes()) {
    nodes_.recover(record);
    out_.admit(record.description);
    placing_.on_node(record.description.id, now);
  }
  for (const auto& [epoch, dead] : members_.tombstones()) {  // admitted only to receive Fence
    if (nodes_.find(dead.node) != nullptr || admissions_.joined().count(dead.node) != 0) continue;
    NodeDescription node;
    node.id = dead.node;
    node.public_key = dead.public_key;
    out_.admit(node);
    admissions_.expire_later(dead.node, now);
  }
  run(actors_.start(), now);
  for (const JobRecord& job : jobs_.list())
    if (job.state == JobState::running && !members_.is_current(job.node, job.epoch))
      run(jobs_.on_node_dead(job.node, job.epoch, "control was restarting", wall_now()), now);
  settle(now);
}

// --- steps -------------------------------------------------------------------------------------

/// Carries out `at_once` and queues the rest. All cores share one queue, since an event of one core
/// may rest on an earlier write of another.
template <class E>
void Service::run(Output<E> output, Time now) {
  if constexpr (std::is_same_v<E, MembershipEvent>) note_dead(output);
  Output<Event> all;
  gate_.add(output.writes);
  all.writes = std::move(output.writes);
  for (E& event : output.after_sync) all.after_sync.emplace_back(std::move(event));
  queue_.add(std::move(all));
  for (const E& event : output.at_once) carry_out(event, now);
}

/// Logs the line, and tells it to the agent beside control.
void Service::tell(Notice::Kind kind, const std::string& line) {
  out_.say(line);
  const NodeId beside = members_.roster().beside_control;
  const NodeTable::Node* node = nodes_.find(beside);
  if (node != nullptr && node->registered) out_.send(beside, Notice{kind, line});
}

void Service::answer(NodeId to, FromControl message, Time now) {
  Output<Answer> output;
  output.after_sync.push_back({to, std::move(message)});
  run(std::move(output), now);
}

/// Carries out the events whose writes are durable, and all that follows from them.
void Service::settle(Time now) {
  while (true) {
    if (const auto event = queue_.pop())
      std::visit([&](const auto& one) { carry_out(one, now); }, *event);
    else if (placing_.is_due(now))
      place_waiting(now);
    else
      break;
  }
  if (broadcast_at_ && *broadcast_at_ <= now) broadcast_nodes(now);
}

const std::vector<Batch>& Service::begin_commit() {
  gate_.on_commit();
  if (!queue_.busy()) gate_.set_space(store_.accepts_writes());
  return queue_.begin();
}

void Service::finish_commit(Time now) {
  queue_.finish();
  settle(now);
}

/// Returns why a request that writes cannot be taken now; null when it can. While a commit is under
/// way the store belongs to the disk's thread, so the store's last answer counts.
std::shared_ptr<const ErrorInfo> Service::refusal() {
  if (!queue_.busy()) gate_.set_space(store_.accepts_writes());
  return gate_.refusal();
}

/// Carries out what Placing has decided of an actor.
void Service::follow(const Placing::Verdict& verdict, Time now) {
  const auto& [actor, incarnation, node, epoch, why] = verdict;
  run(node ? actors_.on_placed(actor, incarnation, node, epoch)
           : actors_.on_unplaceable(actor, incarnation, Error(Code::infeasible, why)),
      now);
}

void Service::place_waiting(Time now) {
  placing_.begin_round(now);
  while (const auto verdict = placing_.next(now)) follow(*verdict, now);
}

/// Returns the epoch of a node that has registered with this control and is not dead.
std::optional<Epoch> Service::epoch_of(NodeId node) const {
  const NodeTable::Node* known = nodes_.find(node);
  if (known != nullptr && known->registered && members_.is_current(node, known->epoch))
    return known->epoch;
  const auto record = members_.find(node);  // its registration may not be durable yet
  if (!record || !record->registered) return std::nullopt;
  return record->epoch;
}

// --- in ----------------------------------------------------------------------------------------

void Service::on_message(NodeId from, const ToControl& message, Time now) {
  const std::optional<Epoch> epoch = epoch_of(from);
  const bool of_any_agent = std::holds_alternative<RegisterNode>(message) ||
                            std::holds_alternative<Heartbeat>(message) ||
                            std::holds_alternative<Leaving>(message);
  if (!authority_.may_say(from, message))
    object_to(from, message);
  else if (epoch || of_any_agent)
    std::visit([&](const auto& one) { on(one, Sender{from, epoch.value_or(0)}, now); }, message);
  else
    refuse(from, message,
           Error(Code::unavailable, "the node has not registered with control").shared_info());
  settle(now);
}

/// Refuses a message that the sender may not send. Logs the first one of each node, and then each
/// time that their number has doubled.
void Service::object_to(NodeId from, const ToControl& message) {
  const std::string why = "node " + from.str() + " said " + name_of(message) +
                          " about what is another node's or another job's";
  const std::uint64_t count = ++objections_[from];
  if (std::has_single_bit(count))
    tell(Notice::Kind::refused, "control refuses, " + std::to_string(count) + " so far: " + why);
  refuse(from, message, Error(Code::invalid_argument, why, Outcome::not_executed).shared_info());
}

void Service::on_closed(NodeId node, Time now) {
  run(members_.on_closed(node, now), now);
  settle(now);
}

void Service::on_reset(NodeId node, Time now) {
  placing_.on_reset(node);
  pages_.forget(node);
  actors_.on_reset(node);
  on_closed(node, now);
}

void Service::on_probe(NodeId node, Epoch epoch, bool gone, Time now) {
  run(members_.on_probe(node, epoch, gone, now), now);
  settle(now);
}

void Service::on_join(std::uint64_t request, const std::string& token, const NodeDescription& node,
                      Time now) {
  std::shared_ptr<const ErrorInfo> error =
      admissions_.refusal(token, node, members_.find(node.id).has_value());
  if (!error) error = refusal();
  if (error) return out_.joined(request, error);
  Output<Admit> output;
  output.writes = admissions_.join(token, node);
  output.after_sync.push_back({request, node});
  run(std::move(output), now);
  settle(now);
}

void Service::on_tick(Time now) {
  if (members_.next_tick() <= now) run(members_.on_tick(now), now);
  actors_.all_heard_since(members_.all_heard_since());
  run(actors_.on_tick(now), now);
  placing_.on_tick(now);
  if (slow_.next_tick() <= now) look_for_slow(now);
  while (const auto node = admissions_.pop_expired(now)) {
    if (members_.find(*node)) continue;
    forget_join(*node, now);
    out_.revoke(*node);
  }
  settle(now);
}

Time Service::next_tick() const {
  Time next = members_.next_tick();
  if (const auto due = actors_.next_deadline()) next = std::min(next, *due);
  if (broadcast_at_) next = std::min(next, *broadcast_at_);
  return std::min({next, placing_.next_tick(), slow_.next_tick(), admissions_.next_expiry()});
}

// --- messages: actors --------------------------------------------------------------------------

void Service::on(SpawnActor message, Sender from, Time now) {
  message.from = from.node;
  scheduling::normalize(message.spec.demand.need);
  const ActorSpec& spec = message.spec;
  std::shared_ptr<const ErrorInfo> error;
  // A repeated spawn is not refused for lack of space: an earlier one was accepted, and the actor
  // may live.
  if ((spec.detached || !spec.name.empty()) && !message.again && !actors_.find(spec.id))
    error = refusal();
  if (!spec.id)
    error = Error(Code::invalid_argument, "an actor needs an id").shared_info();
  else if (!spec.detached && spec.job && !jobs_.is_running(spec.job))
    error =
        Error(Code::cancelled, "the actor's job " + spec.job.str() + " has ended").shared_info();
  if (error) return refuse(from.node, message, error);
  run(actors_.on_spawn(message, now), now);
}

void Service::on(const ActorStarted& message, Sender from, Time now) {
  placing_.end_start(from.node, {message.actor, message.incarnation}, true, now);
  run(actors_.on_started(message.actor, message.incarnation, from.node, from.epoch, message.worker,
                         now),
      now);
}

void Service::on(const ActorStartFailed& message, Sender from, Time now) {
  placing_.end_start(from.node, {message.actor, message.incarnation}, false, now);
  run(actors_.on_start_failed(message.actor, message.incarnation, error_of(message.error)), now);
}

void Service::on(const ActorGone& message, Sender from, Time now) {
  placing_.end_start(from.node, {message.actor, message.incarnation}, false, now);
  const Error cause =
      error_of(message.error)
          .value_or(Error(Code::worker_died, "its process is gone", Outcome::unknown));
  run(actors_.on_died(message.actor, message.incarnation, cause, message.intended, now), now);
}

void Service::on(const KillActor& message, Sender, Time now) {
  run(actors_.on_kill(message.actor, message.may_restart, now, message.life), now);
}

void Service::on(const HandlesGone& message, Sender, Time now) {
  run(actors_.on_handles_gone(message.actor), now);
}

void Service::on(const FindActor& message, Sender from, Time now) {
  run(actors_.on_find(from.node, message.request, message.name_space, message.name), now);
}

void Service::on(const WatchActor& message, Sender from, Time now) {
  if (message.on)
    run(actors_.on_watch(message.actor, from.node, now), now);
  else
    run(actors_.on_unwatch(message.actor, from.node), now);
}

void Service::on(NodeHosts message, Sender from, Time now) {
  if (!members_.is_current(from.node, message.epoch)) return;
  if (message.control_epoch != control_epoch()) return;  // it is meant for an earlier control
  message.node = from.node;
  switch (pages_.add(message)) {
    case HostsPages::State::open: return;
    case HostsPages::State::whole: return on_hosts(message, from, now);
    case HostsPages::State::too_long:
      return out_.revoke(from.node);  // from now on silent, so it is declared dead
  }
}

void Service::on_hosts(const NodeHosts& message, Sender from, Time now) {
  std::set<Placing::Life> hosted;  // also lives whose end is reported again
  for (const HostedActor& actor : message.actors) {
    hosted.insert({actor.spec.id, actor.incarnation});
    const auto known = actors_.find(actor.spec.id);  // its ActorStarted may be lost
    if (actor.worker != 0 && !actor.ended && known && known->incarnation == actor.incarnation &&
        known->state != ActorState::alive)
      on(ActorStarted{actor.spec.id, actor.incarnation, actor.worker}, from, now);
  }
  run(actors_.on_node_hosts(message, now), now);
  for (const auto& [actor, incarnation] : placing_.end_lost_starts(from.node, hosted, now))
    run(actors_.on_start_failed(actor, incarnation, std::nullopt), now);
  std::set<JobId> over;  // JobEnded of these was sent while the node was away
  for (const HostedActor& actor : message.actors)
    if (!actor.spec.detached && actor.spec.job && !jobs_.is_running(actor.spec.job))
      over.insert(actor.spec.job);
  for (const JobId job : over) run(actors_.on_job_ended(job), now);
}

// --- messages: jobs and values -----------------------------------------------------------------

void Service::on(StartJob message, Sender from, Time now) {
  if (const auto error = refusal()) return refuse(from.node, message, error);
  message.from = from.node;
  message.job.node = from.node;
  message.job.epoch = from.epoch;
  message.job.started_ns = wall_now();
  run(jobs_.on_start(message), now);
}

void Service::on(const FinishJob& message, Sender, Time now) {
  const bool stopped = !message.stopped_why.empty();
  end_job(message.job, stopped ? JobState::stopped : JobState::finished, message.stopped_why, now);
}

void Service::on(const DriverDied& message, Sender, Time now) {
  end_job(message.job, JobState::failed, message.why, now);
}

/// Ends a job: its actors first, then (JobIdle) its record. `why`: why its driver died, or who
/// stopped the job.
void Service::end_job(JobId job, JobState state, const std::string& why, Time now) {
  if (!jobs_.is_running(job) || !ending_jobs_.try_emplace(job, state, why).second) return;
  run(actors_.on_job_ending(job, now), now);
}

void Service::on(const GetJob& message, Sender from, Time now) {
  JobInfo info{message.request, std::nullopt};
  if (const JobRecord* job = jobs_.find(message.job)) info.job = *job;
  answer(from.node, std::move(info), now);
}

void Service::on(const KeyValueRequest& message, Sender from, Time now) {
  using Verb = KeyValueRequest::Verb;
  const NodeId to = from.node;
  if (message.verb == Verb::put || message.verb == Verb::erase)
    if (const auto error = refusal()) return refuse(to, message, error);
  switch (message.verb) {
    case Verb::get:
      run(values_.on_get(to, message.request, message.name_space, message.key), now);
      break;
    case Verb::put:
      run(values_.on_put({to, message.request, message.name_space, message.key, message.value,
                          message.mode, message.expected}),
          now);
      break;
    case Verb::erase:
      run(values_.on_delete(to, message.request, message.name_space, message.key), now);
      break;
    case Verb::list:
      run(values_.on_list(to, message.request, message.name_space, message.key), now);
      break;
  }
}

void Service::on(const NameObject& message, Sender from, Time now) {
  if (names_.writes(message))
    if (const auto error = refusal()) return refuse(from.node, message, error);
  run(names_.on_message(message, from.node), now);
}

/// Answers the message with an error if it has an answer; drops it otherwise.
void Service::refuse(NodeId from, const ToControl& message,
                     const std::shared_ptr<const ErrorInfo>& why) {
  if (const auto answer = refusal_of(message, why)) out_.send(from, *answer);
}

// --- what follows ------------------------------------------------------------------------------

void Service::carry_out(const MembershipEvent& event, Time now) {
  std::visit([&](const auto& one) { on_node(one, now); }, event);
}

void Service::carry_out(const DirectoryEvent& event, Time now) {
  if (const auto* wanted = std::get_if<PlaceActor>(&event)) {
    if (const auto verdict = placing_.add(*wanted, now)) follow(*verdict, now);
  } else if (const auto* start = std::get_if<StartActorAt>(&event)) {
    out_.send(start->node, *start);
  } else if (const auto* stop = std::get_if<StopActorAt>(&event)) {
    out_.send(stop->node, *stop);
  } else if (const auto* reply = std::get_if<ActorReply>(&event)) {
    out_.send(reply->to, *reply);
  } else if (const auto* update = std::get_if<ActorUpdateTo>(&event)) {
    out_.send(update->watcher, update->location);
  } else if (const auto* trouble = std::get_if<ActorTrouble>(&event)) {
    tell(Notice::Kind::actor_trouble, trouble->line);
  } else if (const auto* idle = std::get_if<JobIdle>(&event)) {
    const auto ending = ending_jobs_.find(idle->job);
    if (ending == ending_jobs_.end()) return;
    const auto& [state, why] = ending->second;
    run(state == JobState::stopped  ? jobs_.on_stopped(idle->job, why, wall_now())
        : state == JobState::failed ? jobs_.on_driver_died(idle->job, why, wall_now())
                                    : jobs_.on_finish(idle->job, wall_now()),
        now);
  }
}

void Service::carry_out(const JobEvent& event, Time now) {
  if (const auto* reply = std::get_if<JobReply>(&event)) {
    out_.send(reply->to, *reply);
  } else if (const auto* ended = std::get_if<JobEnded>(&event)) {
    ending_jobs_.erase(ended->job);
    run(actors_.on_job_ended(ended->job), now);
    out_.broadcast(nodes_.listeners(true), *ended);
  }
}

void Service::carry_out(const KvReply& event, Time) {
  out_.send(event.to, event);
}

void Service::carry_out(const ObjectNameEvent& event, Time) {
  if (const auto* reply = std::get_if<NamedObject>(&event))
    out_.send(reply->to, *reply);
  else if (const auto* forgotten = std::get_if<ObjectForgotten>(&event))
    if (epoch_of(forgotten->to)) out_.send(forgotten->to, *forgotten);
}

void Service::carry_out(const Answer& event, Time) {
  out_.send(event.to, event.message);
}

void Service::carry_out(const Admit& event, Time now) {
  out_.admit(event.node);
  admissions_.expire_later(event.node.id, now);
  out_.joined(event.request, nullptr);
}

// Used by the other files of Service too.
template void Service::run(Output<MembershipEvent> output, Time now);
template void Service::run(Output<DirectoryEvent> output, Time now);
template void Service::run(Output<JobEvent> output, Time now);
template void Service::run(Output<Answer> output, Time now);
template void Service::run(Output<AnswerNodes> output, Time now);

}  // namespace troupe::control
