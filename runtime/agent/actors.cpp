#include "troupe/runtime/agent/actors.hpp"

#include <algorithm>

namespace troupe::agent {
namespace {
/// An actor that somebody asks about and nobody has created: its creator's message is read within
/// this time or never.
constexpr Duration kUnknown = std::chrono::seconds(5);
}  // namespace

bool ActorHost::create(const wire::CreateActor& message, BlobView payload) {
  if (!message.name.empty()) {
    const auto [at, fresh] = names_.try_emplace({message.name_space, message.name}, message.actor);
    if (!fresh) return false;
  }
  Actor& actor = actors_[message.actor];
  actor.spec = message;
  actor.payload.assign(payload.begin(), payload.end());
  actor.known = true;
  if (actor.final || actor.state == wire::ActorState::dead)  // killed before its creation was read
    bury(message.actor, actor, Error(Code::actor_died, "the actor was killed"));
  else
    begin(message.actor, actor);
  return true;
}

void ActorHost::begin(ActorId id, Actor& actor) {
  ++actor.incarnation;
  actor.worker = 0;
  out_.need_worker(id, actor.spec.shape);
}

void ActorHost::worker_ready(ActorId id, ProcessIndex worker, std::vector<std::int32_t> gpus) {
  const auto found = actors_.find(id);
  if (found == actors_.end() || found->second.state == wire::ActorState::dead) {
    out_.release_worker(id);
    return;
  }
  Actor& actor = found->second;
  actor.worker = worker;
  by_worker_[worker] = id;
  wire::StartActor start;
  start.actor = id;
  start.lifetime = actor.spec.lifetime;
  start.incarnation = actor.incarnation;
  start.max_concurrency = actor.spec.max_concurrency;
  start.restarted = actor.incarnation > 1;
  start.name = actor.spec.name;
  start.gpus = std::move(gpus);
  start.creation = actor.spec.creation;
  out_.start_actor(worker, start, actor.payload);
}

void ActorHost::no_worker(ActorId id, const Error& why) {
  const auto found = actors_.find(id);
  if (found != actors_.end() && found->second.state != wire::ActorState::dead)
    bury(id, found->second, why);
}

void ActorHost::created(ProcessIndex worker, const wire::ActorCreated& message, Time) {
  const auto found = actors_.find(message.actor);
  if (found == actors_.end()) return;
  Actor& actor = found->second;
  if (actor.worker != worker || actor.incarnation != message.incarnation ||
      actor.state == wire::ActorState::dead)
    return;
  if (!message.error) {
    actor.state = wire::ActorState::alive;
    publish(message.actor, actor);
    return;
  }
  ErrorInfo info;
  info.code = Code::actor_died;
  info.message = "its constructor threw: " + message.error->message;
  info.origin = message.error->origin;
  info.type = message.error->type;
  info.outcome = Outcome::not_executed;
  info.cause = message.error;
  by_worker_.erase(worker);
  bury(message.actor, actor, Error(std::move(info)));
  if (actor.abandoned) actors_.erase(message.actor);
}

bool ActorHost::may_restart(Actor& actor, Time now) const {
  if (actor.final || actor.spec.max_restarts == 0) return false;
  if (actor.spec.max_restarts < 0) return true;
  const Duration window(static_cast<Duration::rep>(actor.spec.restart_window_ns));
  while (!actor.restarts.empty() && window > Duration(0) && now - actor.restarts.front() > window)
    actor.restarts.pop_front();
  return actor.restarts.size() < static_cast<std::size_t>(actor.spec.max_restarts);
}

void ActorHost::worker_died(ProcessIndex worker, const Error& reason, Time now) {
  forget_watcher(worker);
  const auto at = by_worker_.find(worker);
  if (at == by_worker_.end()) return;
  const ActorId id = at->second;
  by_worker_.erase(at);
  const auto found = actors_.find(id);
  if (found == actors_.end()) return;
  Actor& actor = found->second;
  if (actor.worker != worker) return;
  if (actor.state == wire::ActorState::dead) {
    if (actor.abandoned) actors_.erase(id);
    return;
  }
  if (!may_restart(actor, now)) {
    ErrorInfo info;
    info.code = Code::actor_died;
    info.message =
        actor.final ? "the actor was ended" : "the actor's process died: " + reason.message();
    if (!actor.final && actor.spec.max_restarts > 0)
      info.message += "; it had used its " + std::to_string(actor.spec.max_restarts) + " restarts";
    info.origin = reason.where();
    info.origin.function = actor.spec.class_name;
    info.outcome = Outcome::not_executed;
    info.cause = reason.shared_info();
    bury(id, actor, Error(std::move(info)));
    if (actor.abandoned) actors_.erase(id);
    return;
  }
  actor.restarts.push_back(now);
  actor.state = wire::ActorState::restarting;
  publish(id, actor);
  out_.release_worker(id);
  begin(id, actor);
}

void ActorHost::bury(ActorId id, Actor& actor, const Error& reason) {
  actor.state = wire::ActorState::dead;
  actor.error = reason.shared_info();
  free_name(id, actor);
  if (actor.known) out_.drop_creation(actor.spec.creation);
  actor.payload.clear();
  publish(id, actor);
  out_.release_worker(id);
}

wire::ActorUpdate ActorHost::update_of(ActorId id, const Actor& actor) {
  wire::ActorUpdate update;
  update.actor = id;
  update.state = actor.state;
  update.incarnation = actor.incarnation;
  update.worker = actor.worker;
  update.error = actor.error;
  return update;
}

void ActorHost::publish(ActorId id, const Actor& actor) {
  const wire::ActorUpdate update = update_of(id, actor);
  for (const ProcessIndex watcher : actor.watchers) out_.publish(watcher, update);
}

void ActorHost::watch(ActorId id, ProcessIndex process, Time now) {
  Actor& actor = actors_[id];
  if (!actor.known && actor.unknown_since == Time{}) actor.unknown_since = now;
  actor.watchers.insert(process);
  if (actor.state != wire::ActorState::pending) out_.publish(process, update_of(id, actor));
}

void ActorHost::kill(ActorId id, bool allow_restart, Time now) {
  if (allow_restart && actors_.count(id) == 0) return;
  // Rings are read in any order: who kills may be read before who created.
  const auto [found, unknown] = actors_.try_emplace(id);
  Actor& actor = found->second;
  if (actor.state == wire::ActorState::dead) return;
  if (unknown) actor.unknown_since = now;
  if (!actor.known) {
    actor.final = actor.final || !allow_restart;
    return;
  }
  if (actor.worker != 0) out_.kill_worker(actor.worker);
  if (allow_restart) return;
  // Dead from this moment for everybody, whenever its process ends.
  actor.final = true;
  bury(id, actor, Error(Code::actor_died, "the actor was killed"));
}

void ActorHost::free_name(ActorId id, const Actor& actor) {
  if (actor.spec.name.empty()) return;
  const auto name = names_.find({actor.spec.name_space, actor.spec.name});
  if (name != names_.end() && name->second == id) names_.erase(name);
}

void ActorHost::unreferenced(ActorId id) {
  const auto found = actors_.find(id);
  if (found == actors_.end()) return;
  Actor& actor = found->second;
  if (actor.state == wire::ActorState::dead) {
    actors_.erase(found);
    return;
  }
  if (actor.spec.detached) return;
  actor.final = true;
  actor.abandoned = true;
  free_name(id, actor);
  if (actor.worker != 0) {
    out_.end_worker(actor.worker);
  } else {
    bury(id, actor, Error(Code::actor_died, "no handle of the actor was left"));
    actors_.erase(id);
  }
}

void ActorHost::find(ProcessIndex process, const wire::FindActor& message) {
  wire::FoundActor found;
  found.request = message.request;
  const auto at = names_.find({message.name_space, message.name});
  if (at != names_.end()) {
    const Actor& actor = actors_.at(at->second);
    found.found = true;
    found.actor = at->second;
    found.lifetime = actor.spec.lifetime;
    found.class_name = actor.spec.class_name;
  }
  out_.answer(process, found);
}

void ActorHost::forget_watcher(ProcessIndex process) {
  for (auto& [id, actor] : actors_) actor.watchers.erase(process);
}

void ActorHost::on_timer(Time now) {
  std::vector<ActorId> unknown;
  for (const auto& [id, actor] : actors_)
    if (!actor.known && actor.state != wire::ActorState::dead &&
        now - actor.unknown_since >= kUnknown)
      unknown.push_back(id);
  for (const ActorId id : unknown)
    bury(id, actors_.at(id), Error(Code::actor_died, "nobody has created this actor"));
}

std::optional<Time> ActorHost::next_deadline() const {
  std::optional<Time> next;
  for (const auto& [id, actor] : actors_)
    if (!actor.known && actor.state != wire::ActorState::dead)
      if (!next || actor.unknown_since + kUnknown < *next) next = actor.unknown_since + kUnknown;
  return next;
}

std::vector<ActorHost::Row> ActorHost::rows() const {
  std::vector<Row> rows;
  for (const auto& [id, actor] : actors_)
    rows.push_back(
        {id, actor.spec.name, actor.spec.class_name, actor.state, actor.incarnation, actor.worker});
  return rows;
}

}  // namespace troupe::agent
