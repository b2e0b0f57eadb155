#include "troupe/runtime/control/directory.hpp"

#include "troupe/runtime/base/back_off.hpp"
#include "troupe/runtime/control/internal/actor_errors.hpp"

#include <algorithm>

namespace troupe::control {

std::string_view name_of(ActorState state) noexcept {
  switch (state) {
    case ActorState::pending: return "pending";
    case ActorState::placing: return "placing";
    case ActorState::alive: return "alive";
    case ActorState::restarting: return "restarting";
    case ActorState::dead: return "dead";
  }
  return "unknown";
}

Directory::Directory(DirectoryOptions options, Epoch control_epoch)
    : options_(options),
      control_epoch_(control_epoch),
      next_incarnation_(control_epoch << 32),
      unknown_(options.unknown_kept, options.unknown_longest) {}

Result<Directory> Directory::recover(Store& store, DirectoryOptions options,
                                     std::vector<std::pair<NodeId, Epoch>> awaited) {
  Directory directory(options, store.epoch());
  directory.awaited_.insert(awaited.begin(), awaited.end());
  auto stored = read_actors(store);
  if (!stored) return stored.error();
  for (auto& spec : stored->detached) directory.actors_[spec->id].spec = std::move(spec);
  directory.names_ = std::move(stored->names);
  for (const auto& killed : stored->killed) directory.tombstones_.restore(killed);
  return directory;
}

// --- spawning ----------------------------------------------------------------------------------

void Directory::reply_error(const SpawnActor& message, const Error& error, Out& out) const {
  if (!message.from) return;
  ActorReply reply;
  reply.to = message.from;
  reply.request = message.request;
  reply.error = error.shared_info();
  out.after_sync.emplace_back(std::move(reply));
}

/// Fills in what the asker needs to make a handle of the actor.
void Directory::describe(ActorReply& reply) const {
  const auto actor = actors_.find(reply.actor);
  if (actor == actors_.end()) return;
  reply.class_name = actor->second.spec->class_name;
  reply.lifetime = actor->second.spec->lifetime;
  reply.owner = actor->second.spec->owner;
}

/// Returns whether the name's actor is stored but unknown, and an awaited node may still report it.
/// Until then no question about the name can be answered.
bool Directory::is_unclaimed(const ActorName& name) const {
  const auto at = names_.find(name);
  return at != names_.end() && !awaited_.empty() && actors_.count(at->second) == 0;
}

void Directory::answer_waiting(Out& out, Time now) {
  for (const auto& [who, name] : deferred_.take_finds())
    out.append(on_find(who.first, who.second, name.first, name.second));
  for (const auto& [who, spawn] : deferred_.take_spawns()) out.append(on_spawn(spawn, now));
}

bool Directory::is_ending(const SpawnActor& message) const {
  const ActorSpec& spec = message.spec;
  const auto at = spec.name.empty() ? ending_.end() : ending_.find({spec.name_space, spec.name});
  return at != ending_.end() && at->second != spec.id;
}

void Directory::refuse(const std::vector<SpawnActor>& spawns, const Error& why, Out& out) const {
  for (const SpawnActor& spawn : spawns) reply_error(spawn, why, out);
}

/// Frees the names in ending_ whose actors' processes have ended, and answers the spawns that wait.
void Directory::free_names(Out& out) {
  const auto freed = std::erase_if(
      ending_, [this](const auto& name) { return !tombstones_.may_live(name.second); });
  if (freed != 0) answer_waiting(out, latest_);
}

Directory::Out Directory::on_spawn(const SpawnActor& message, Time now) {
  Out out;
  latest_ = std::max(latest_, now);
  if (is_of_ending_job(message, out)) return out;
  if (!tombstones_.has(message.spec.id) && is_ending(message)) {
    deferred_.wait_for_name(message, now + options_.ending_name_kept);
    return out;
  }
  deferred_.found_name(message);
  const ActorSpec& spec = message.spec;
  const ActorName name = actor_name(spec);
  Tombstone* const tombstone = tombstones_.find(spec.id);
  const bool is_over = tombstone != nullptr;
  if (is_over) tombstone->maker = {message.from, true};
  const bool may_live =
      message.again && !is_over && !awaited_.empty() && actors_.count(spec.id) == 0;
  if (may_live || (!is_over && !spec.name.empty() && is_unclaimed(name))) {
    deferred_.wait(message);
    return out;
  }
  const auto holder = is_over || spec.name.empty() ? names_.end() : names_.find(name);
  const bool is_repeat = actors_.count(spec.id) != 0;
  if (holder != names_.end() && holder->second != spec.id && !message.get_if_exists) {
    reply_error(message,
                Error(Code::invalid_argument,
                      "the name \"" + spec.name + "\" is taken" +
                          (spec.name_space.empty() ? std::string()
                                                   : " in namespace \"" + spec.name_space + "\"") +
                          ": choose another, or spawn with get_if_exists"),
                out);
    return out;
  }
  ActorReply reply;
  reply.to = message.from;
  reply.request = message.request;
  reply.created = holder == names_.end() || holder->second == spec.id;
  reply.actor = reply.created ? spec.id : holder->second;
  const bool is_new = reply.created && !is_repeat;
  bool killed = false;
  if (is_new) {
    Actor& actor = actors_[spec.id];
    actor.spec = std::make_shared<const ActorSpec>(spec);
    if (spec.detached && !is_over) put_actor(spec, out.writes);
    if (!spec.name.empty() && !is_over) {
      names_[name] = spec.id;
      put_name(name, spec.id, out.writes);
    }
    killed = take_unknown(actor).killed;
  }
  if (reply.created) actors_.at(spec.id).maker = {message.from, true};
  describe(reply);
  if (message.from) out.after_sync.emplace_back(std::move(reply));
  if (!is_new) return out;
  Actor& actor = actors_.at(spec.id);
  if (killed || is_over)
    mark_dead(actor,
              is_over ? "it was killed or has died, which could not be told before" : kKilled,
              std::nullopt, out);
  else
    place(actor, out);
  return out;
}

void Directory::forget_due(Actor& actor) {
  if (actor.place_at) due_.erase({*actor.place_at, actor.spec->id});
  actor.place_at.reset();
}

void Directory::place_later(Actor& actor, Duration pause, Out& out, Time now) {
  actor.state = ActorState::restarting;
  actor.incarnation = ++next_incarnation_;  // so that later messages of the old life are stale
  actor.node = {};
  actor.pause = pause;
  actor.place_at = now + pause;
  due_.insert({*actor.place_at, actor.spec->id});
  tell(actor, out);
  const std::uint32_t lives = actor.pace.short_lives();
  if (lives >= 4 && (lives & (lives - 1)) == 0)
    out.at_once.emplace_back(
        ActorTrouble{actor.trouble->message + "; next attempt in " + pause_text(pause)});
}

/// Records how a life ended, for the locations that watchers get until the next life lives.
void Directory::note_end(Actor& actor, const Error& cause, Time now) const {
  actor.trouble = internal::error_of_life(*actor.spec, actor.pace, cause, now);
}

void Directory::place(Actor& actor, Out& out) {
  actor.only_ended = false;
  actor.end.reset();
  actor.state = actor.started_once ? ActorState::restarting : ActorState::placing;
  actor.incarnation = ++next_incarnation_;
  actor.node = {};
  actor.epoch = 0;
  actor.worker = 0;
  forget_due(actor);
  out.after_sync.emplace_back(PlaceActor{actor.spec->id, actor.incarnation, actor.spec->demand});
  tell(actor, out);
}

Directory::Actor* Directory::current(ActorId id, std::uint64_t incarnation) {
  const auto at = actors_.find(id);
  if (at == actors_.end() || at->second.incarnation != incarnation ||
      at->second.state == ActorState::dead)
    return nullptr;
  return &at->second;
}

Directory::Out Directory::on_placed(ActorId id, std::uint64_t incarnation, NodeId node,
                                    Epoch epoch) {
  Out out;
  Actor* actor = current(id, incarnation);
  if (actor == nullptr || actor->state == ActorState::alive || actor->node) return out;
  actor->node = node;
  actor->epoch = epoch;
  actor->pace.begins();
  out.after_sync.emplace_back(StartActorAt{
      node, epoch, actor->spec, incarnation, actor->started_once,
      static_cast<std::uint32_t>(std::min<std::size_t>(actor->restarts.size(), 1000))});
  return out;
}

Directory::Out Directory::on_unplaceable(ActorId id, std::uint64_t incarnation,
                                         const Error& cause) {
  Out out;
  if (Actor* actor = current(id, incarnation)) mark_dead(*actor, "no node can take it", cause, out);
  return out;
}

Directory::Out Directory::on_started(ActorId id, std::uint64_t incarnation, NodeId node,
                                     Epoch epoch, ProcessIndex worker, Time now) {
  Out out;
  Actor* actor = current(id, incarnation);
  if (actor == nullptr && awaited_.count({node, epoch}) != 0) return out;  // its NodeHosts decides
  if (actor == nullptr || actor->node != node || actor->epoch != epoch) {
    const auto at = actors_.find(id);
    const bool over = at == actors_.end() || at->second.state == ActorState::dead;
    out.after_sync.emplace_back(StopActorAt{node, epoch, id, incarnation, false,
                                            "another life of it has taken its place", over});
    return out;
  }
  actor->state = ActorState::alive;
  actor->started_once = true;
  actor->worker = worker;
  actor->pace.lives(now);
  actor->trouble.reset();
  tell(*actor, out);
  return out;
}

Directory::Out Directory::on_start_failed(ActorId id, std::uint64_t incarnation,
                                          const std::optional<Error>& cause) {
  Out out;
  life_ended(id, incarnation, false, out);
  Actor* actor = current(id, incarnation);
  if (actor == nullptr || actor->state == ActorState::alive) return out;
  if (!cause)
    place(*actor, out);
  else if (cause->code() == Code::infeasible)
    mark_dead(*actor, "no node can take it", cause, out);
  else
    mark_dead(*actor,
              (cause->code() == Code::task_failed ? "its constructor threw: "
                                                  : "it could not be made: ") +
                  cause->message(),
              cause, out);
  return out;
}

// --- failures ----------------------------------------------------------------------------------

Directory::Out Directory::on_died(ActorId id, std::uint64_t incarnation, const Error& cause,
                                  bool intended, Time now) {
  Out out;
  // The node reports an end that was not intended to a later control too, which would then begin
  // a new life. The tombstone must therefore keep the node as a reporter.
  life_ended(id, incarnation, !intended, out);
  Actor* actor = current(id, incarnation);
  if (actor == nullptr || (actor->only_ended && actor->state == ActorState::pending)) return out;
  const NodeId where = actor->node;
  if (intended)
    mark_dead(*actor, "it has exited", std::nullopt, out);
  else
    fail(*actor,
         (actor->state == ActorState::alive ? "its process died: " : "its constructor failed: ") +
             cause.message(),
         cause, true, out, now);
  if (where && actor->state != ActorState::dead) actor->reporters.insert(where);
  return out;
}

/// Begins the actor's next life, at once or after a pause, if it has a restart left. Otherwise it
/// is dead of `what`. `counts`: this end uses up a restart.
void Directory::fail(Actor& actor, const std::string& what, const Error& cause, bool counts,
                     Out& out, Time now) {
  const ActorSpec& spec = *actor.spec;
  if (ending_jobs_.has(spec.job) && !spec.detached) return mark_dead(actor, what, cause, out);
  if (actor.only_ended && !awaited_.empty()) {
    // An awaited node may report a later life; else resolve_unclaimed() judges this end.
    actor.end.emplace(what, cause);
    actor.state = ActorState::pending;
    actor.node = {};
    return;
  }
  if (!counts) return place(actor, out);
  if (spec.max_restarts >= 0) {
    if (spec.restart_window > Duration::zero())
      while (!actor.restarts.empty() && now - actor.restarts.front() >= spec.restart_window)
        actor.restarts.pop_front();
    const auto used = static_cast<std::int64_t>(actor.restarts.size());
    if (used >= spec.max_restarts) {
      mark_dead(actor,
                spec.max_restarts == 0
                    ? what
                    : what + "; it had used its " + std::to_string(spec.max_restarts) + " restarts",
                cause, out);
      return;
    }
  }
  note_end(actor, cause, now);
  const bool asked = actor.killed_life != 0 && actor.incarnation <= actor.killed_life;
  const Duration pause = actor.pace.ended(options_.pace, now, spec.max_restarts, asked);
  if (spec.max_restarts < 0) actor.restarts.clear();
  actor.restarts.push_back(now);
  for (Time& restart : actor.restarts) restart += pause;  // the window does not count the pause
  if (pause > Duration::zero()) return place_later(actor, pause, out, now);
  place(actor, out);
}

/// Makes the actor dead for good: drops its records and name, leaves a tombstone if one is needed,
/// and sends watchers the error.
void Directory::mark_dead(Actor& actor, const std::string& why, const std::optional<Error>& cause,
                          Out& out) {
  ActorSpec spec = *actor.spec;
  const ActorId id = spec.id;
  actor.error = internal::error_of_death(spec, why, cause, actor.node);
  actor.state = ActorState::dead;
  forget_due(actor);
  if (spec.detached) drop_actor(spec.id, out.writes);
  const auto name = names_.find(actor_name(spec));
  if (name != names_.end() && name->second == spec.id) {
    names_.erase(name);
    drop_name(actor_name(spec), out.writes);
  }
  add_tombstone(actor, false, out);
  actor.reporters.clear();
  tell(actor, out);
  actor.watchers.clear();
  dead_.push_back(spec.id);
  spec.creation = {};  // no further life needs it, and the arguments may be large
  actor.spec = std::make_shared<const ActorSpec>(std::move(spec));
  if (dead_.size() > options_.dead_kept) {
    actors_.erase(dead_.front());  // never this actor, which is at the back
    dead_.pop_front();
  }
  may_be_over(id, out);
}

void Directory::stop(const Actor& actor, const std::string& why, Out& out, Stop how) const {
  if (actor.node)
    out.after_sync.emplace_back(StopActorAt{actor.node, actor.epoch, actor.spec->id,
                                            actor.incarnation, how == Stop::gracefully, why,
                                            how != Stop::may_restart});
}

Directory::Out Directory::on_kill(ActorId id, bool may_restart, Time now, std::uint64_t life) {
  Out out;
  const auto at = actors_.find(id);
  if (at == actors_.end() && !may_restart) {
    unknown_.of(id, now).killed = true;
    refuse(deferred_.take_if([id](const SpawnActor& spawn, bool waits_for_name) {
      return waits_for_name && spawn.spec.id == id;
    }),
           Error(Code::actor_died, kKilled), out);
  }
  if (at == actors_.end() && may_restart && life != 0) unknown_.of(id, now).killed_life = life;
  if (at == actors_.end() || at->second.state == ActorState::dead) return out;
  Actor& actor = at->second;
  if (!may_restart) {
    end(actor, Stop::for_good, out);
  } else if (life == 0 || actor.incarnation <= life) {
    // Its agent reports the death, which then counts like any other.
    stop(actor, kKilled, out, Stop::may_restart);
    const bool is_placed_now =
        actor.state == ActorState::placing || actor.state == ActorState::restarting;
    if (actor.state == ActorState::pending || actor.only_ended)
      actor.killed_life = std::max(actor.killed_life, life);
    else if (life != 0 && is_placed_now && !actor.node && !actor.place_at)
      place(actor, out);  // that life has not begun: a new incarnation tells watchers of its end
    else if (actor.node)
      actor.killed_life = actor.incarnation;
  }
  return out;
}

void Directory::end(Actor& actor, Stop how, Out& out) {
  stop(actor, how == Stop::gracefully ? kUnheld : kKilled, out, how);
  add_tombstone(actor, actor.node || !awaited_.empty(), out, how);
  const ActorSpec& spec = *actor.spec;
  if (how == Stop::gracefully && !spec.name.empty() && tombstones_.may_live(spec.id))
    ending_[actor_name(spec)] = spec.id;
  mark_dead(actor, how == Stop::gracefully ? kUnheld : kKilled, std::nullopt, out);
}

/// Writes a tombstone if a later control would otherwise adopt or begin a life of the dead actor.
/// StopActorAt may be lost with this control, after watchers have heard that the actor is dead. So
/// may the news of its death, on its way to a node that reports an earlier life or repeats the
/// spawn. While nodes are awaited, any of them may be such a node.
void Directory::add_tombstone(const Actor& actor, bool may_live, Out& out, Stop how) {
  const ActorId id = actor.spec->id;
  ActorMaker maker = actor.maker;
  if (const auto waits = deferred_.maker_of(id)) maker = {*waits, true};
  if (!may_live && actor.reporters.empty() && !maker.node && awaited_.empty()) return;
  const NodeId node = may_live ? actor.node : NodeId{};
  const bool gracefully = how == Stop::gracefully;
  const bool starts = node && actor.state != ActorState::alive;
  tombstones_.add(
      id, {node, actor.epoch, actor.incarnation, actor.reporters, maker, gracefully, starts},
      out.writes);
}

void Directory::life_ended(ActorId id, std::uint64_t life, bool told_again, Out& out) {
  if (!tombstones_.life_ended(id, life, told_again, awaits_nodes(), out.writes)) return;
  may_be_over(id, out);
  free_names(out);
}

Directory::Out Directory::on_handles_gone(ActorId id) {
  Out out;
  const auto at = actors_.find(id);
  if (at == actors_.end() && !awaited_.empty())
    unknown_.of(id, Time{}).killed = true;  // it ends when an awaited node reports it
  if (at == actors_.end())
    refuse(deferred_.take_if([id](const SpawnActor& spawn, bool waits_for_name) {
      return waits_for_name && spawn.spec.id == id && !spawn.spec.detached;
    }),
           Error(Code::actor_died, kUnheld), out);
  if (at == actors_.end() || at->second.state == ActorState::dead || at->second.spec->detached)
    return out;
  end(at->second, Stop::gracefully, out);
  return out;
}

// --- observers ---------------------------------------------------------------------------------

ActorLocation Directory::location_of(ActorId id, const Actor& actor) const {
  ActorLocation location;
  location.actor = id;
  location.state = actor.state;
  location.incarnation = actor.incarnation;
  if (actor.state == ActorState::alive) {
    location.node = actor.node;
    location.epoch = actor.epoch;
    location.worker = actor.worker;
  }
  location.error = actor.error;
  if (actor.trouble && actor.state != ActorState::dead && actor.state != ActorState::alive) {
    location.error = actor.trouble;
    location.retry_in = actor.place_at ? actor.pause : Duration::zero();
  }
  return location;
}

void Directory::tell(Actor& actor, Out& out) {
  for (const NodeId watcher : actor.watchers)
    out.after_sync.emplace_back(ActorUpdateTo{watcher, location_of(actor.spec->id, actor)});
}

Directory::Out Directory::on_watch(ActorId id, NodeId watcher, Time now) {
  Out out;
  const auto at = actors_.find(id);
  ActorLocation location;
  location.actor = id;
  if (at != actors_.end()) {
    if (at->second.state != ActorState::dead) at->second.watchers.insert(watcher);
    location = location_of(id, at->second);
    if (at->second.place_at) location.retry_in = std::max(*at->second.place_at - now, Duration{});
  } else {
    unknown_.of(id, now).watchers.insert(watcher);
  }
  out.after_sync.emplace_back(ActorUpdateTo{watcher, std::move(location)});
  return out;
}

/// Turns the watchers of the unknown actor into watchers of this one. Returns the entry with the
/// kills that it remembers.
UnknownActors::Asked Directory::take_unknown(Actor& actor) {
  UnknownActors::Asked asked = unknown_.take(actor.spec->id);
  actor.watchers.merge(asked.watchers);
  return asked;
}

void Directory::expire_unknown(Time now, Out& out) {
  if (awaits_nodes()) return;  // an awaited node may still report the actor
  while (const auto asked = unknown_.take_expired(now)) {
    ActorLocation location;
    location.actor = asked->first;
    location.state = ActorState::dead;
    location.error = internal::error_of_unknown();
    for (const NodeId watcher : asked->second.watchers)
      out.after_sync.emplace_back(ActorUpdateTo{watcher, location});
  }
}

Directory::Out Directory::on_unwatch(ActorId id, NodeId watcher) {
  Out out;
  const auto at = actors_.find(id);
  if (at != actors_.end()) {
    at->second.watchers.erase(watcher);
    at->second.reporters.erase(watcher);
    if (at->second.maker.node == watcher) at->second.maker = {};
  }
  unknown_.unwatch(id, watcher);
  tombstones_.has_heard(id, watcher, awaits_nodes(), out.writes);
  return out;
}

Directory::Out Directory::on_find(NodeId from, std::uint64_t request, const std::string& name_space,
                                  const std::string& name) {
  Out out;
  if (is_unclaimed({name_space, name})) {
    deferred_.wait({from, request}, {name_space, name});
    return out;
  }
  ActorReply reply;
  reply.to = from;
  reply.request = request;
  const auto at = names_.find({name_space, name});
  if (at != names_.end()) {
    reply.actor = at->second;
    describe(reply);
  }
  out.after_sync.emplace_back(std::move(reply));
  return out;
}

Directory::Out Directory::on_tick(Time now) {
  Out out;
  while (!due_.empty() && due_.begin()->first <= now) place(actors_.at(due_.begin()->second), out);
  expire_unknown(now, out);
  end_jobs(out, now);
  const auto kept = std::chrono::duration_cast<std::chrono::seconds>(options_.ending_name_kept);
  for (const SpawnActor& late : deferred_.take_late(now))
    reply_error(late,
                Error(Code::unavailable,
                      "the name \"" + late.spec.name +
                          "\" is still that of an actor which nobody holds any more: its process "
                          "has not ended within " +
                          std::to_string(kept.count()) +
                          " s, and is killed 10 s after the actor was told to end; try again, or "
                          "choose another"),
                out);
  return out;
}

std::optional<Time> Directory::next_deadline() const {
  std::optional<Time> next = ending_jobs_.next_deadline();
  const auto earlier = [&next](const std::optional<Time>& time) {
    if (time) next = std::min(next.value_or(*time), *time);
  };
  earlier(deferred_.next_deadline());
  if (!due_.empty()) earlier(due_.begin()->first);
  if (!awaits_nodes()) earlier(unknown_.next_deadline());
  return next;
}

std::optional<ActorLocation> Directory::find(ActorId id) const {
  const auto at = actors_.find(id);
  if (at == actors_.end()) return std::nullopt;
  return location_of(id, at->second);
}

std::shared_ptr<const ActorSpec> Directory::spec(ActorId actor) const {
  const auto at = actors_.find(actor);
  return at == actors_.end() ? nullptr : at->second.spec;
}

NodeId Directory::host_of(ActorId actor, std::uint64_t life) const {
  const auto at = actors_.find(actor);
  return at == actors_.end() || at->second.incarnation != life ? NodeId{} : at->second.node;
}

std::uint32_t Directory::restarts(ActorId actor) const {
  const auto at = actors_.find(actor);
  return at == actors_.end() ? 0 : static_cast<std::uint32_t>(at->second.restarts.size());
}

std::vector<std::pair<ActorSpec, ActorLocation>> Directory::list() const {
  std::vector<std::pair<ActorSpec, ActorLocation>> all;
  for (const auto& [id, actor] : actors_) all.emplace_back(*actor.spec, location_of(id, actor));
  return all;
}

std::map<NodeId, std::uint32_t> Directory::hosted() const {
  std::map<NodeId, std::uint32_t> counts;
  for (const auto& [id, actor] : actors_)
    if (actor.node && (actor.state == ActorState::placing || actor.state == ActorState::alive))
      ++counts[actor.node];
  return counts;
}

}  // namespace troupe::control
