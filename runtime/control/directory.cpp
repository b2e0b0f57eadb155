#include "troupe/runtime/control/directory.hpp"

#include "troupe/runtime/base/back_off.hpp"
#include "troupe/runtime/base/buggify.hpp"
#include "troupe/runtime/base/short_name.hpp"
#include "troupe/runtime/control/codec.hpp"
#include "troupe/runtime/control/internal/amounts.hpp"

#include <algorithm>

namespace troupe::control {
namespace {

constexpr std::uint8_t kNameFormat = 1;
constexpr std::uint8_t kActorFormat = 2;   ///< format 1 has no lifetime and owner
constexpr std::uint8_t kKilledFormat = 2;  ///< format 1 has no `gracefully`
constexpr const char* kActorPrefix = "actor/";
constexpr const char* kNamePrefix = "name/";
constexpr const char* kKilledPrefix = "killed/";

constexpr const char* kKilled = "it was killed";
constexpr const char* kOver = "it was killed or has died, which could not be told before";
constexpr const char* kUnheld = "nobody holds a handle to it any more";

std::string actor_key(ActorId id) {
  return kActorPrefix + id.str();
}

/// The length of the namespace keeps ("a/b", "c") and ("a", "b/c") apart.
std::string name_key(const std::string& name_space, const std::string& name) {
  return kNamePrefix + std::to_string(name_space.size()) + "/" + name_space + "/" + name;
}

std::string encode(const ActorSpec& spec) {
  RecordWriter out(kActorFormat);
  out.id(spec.id).id(spec.job).bytes(spec.name).bytes(spec.name_space).bytes(spec.class_name);
  out.bytes(spec.creation).i64(spec.max_restarts).i64(spec.restart_window.count());
  out.boolean(spec.detached);
  const scheduling::ResourceDemand& demand = spec.demand;
  internal::write_amounts(demand.need, demand.labels, out);
  out.u64(static_cast<std::uint64_t>(demand.placement)).id(demand.node).boolean(demand.soft);
  out.id(spec.lifetime).id(spec.owner);
  return out.take();
}

bool decode(std::string_view bytes, ActorSpec& spec) {
  RecordReader in(bytes);
  spec.id = in.id<ActorId>();
  spec.job = in.id<JobId>();
  spec.name = in.bytes();
  spec.name_space = in.bytes();
  spec.class_name = in.bytes();
  spec.creation = in.bytes();
  spec.max_restarts = static_cast<std::int32_t>(in.i64());
  spec.restart_window = Duration(in.i64());
  spec.detached = in.boolean();
  scheduling::ResourceDemand& demand = spec.demand;
  internal::read_amounts(in, demand.need, demand.labels);
  const std::uint64_t placement = in.u64();
  demand.placement = static_cast<scheduling::Placement>(placement);
  demand.node = in.id<NodeId>();
  demand.soft = in.boolean();
  if (in.version() == kActorFormat) {
    spec.lifetime = in.id<ObjectId>();
    spec.owner = in.id<NodeId>();
  }
  return in.ok() && in.version() >= 1 && in.version() <= kActorFormat && placement <= 3;
}

std::string title(const ActorSpec& spec) {
  std::string text = spec.class_name.empty() ? "actor" : "actor " + short_name(spec.class_name);
  if (!spec.name.empty()) text += " \"" + spec.name + "\"";
  return text;
}

}  // namespace

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
    : options_(options), control_epoch_(control_epoch), next_incarnation_(control_epoch << 32) {}

Result<Directory> Directory::recover(Store& store, DirectoryOptions options,
                                     std::vector<std::pair<NodeId, Epoch>> awaited) {
  Directory directory(options, store.epoch());
  directory.awaited_.insert(awaited.begin(), awaited.end());
  bool readable = true;
  auto read = store.scan(kActorPrefix, [&](std::string_view, std::string_view value) {
    auto spec = std::make_shared<ActorSpec>();
    readable = readable && decode(value, *spec);
    directory.actors_[spec->id].spec = spec;
  });
  if (!read) return read.error();
  read = store.scan(kNamePrefix, [&](std::string_view, std::string_view value) {
    RecordReader in(value);
    std::string name_space = in.bytes();
    std::string name = in.bytes();
    directory.names_[{std::move(name_space), std::move(name)}] = in.id<ActorId>();
    readable = readable && in.ok();
  });
  if (!read) return read.error();
  read = store.scan(kKilledPrefix, [&](std::string_view, std::string_view value) {
    RecordReader in(value);
    Tombstone& tombstone = directory.tombstones_[in.id<ActorId>()];
    tombstone.life = in.u64();
    tombstone.gracefully = in.version() == kKilledFormat && in.boolean();
    readable = readable && in.ok() && in.version() >= 1 && in.version() <= kKilledFormat;
  });
  if (!read) return read.error();
  if (!readable)
    return Error(Code::invalid_argument,
                 "a record of an actor or name cannot be read: it was written by a newer build");
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
bool Directory::is_unclaimed(const Name& name) const {
  const auto at = names_.find(name);
  return at != names_.end() && !awaited_.empty() && actors_.count(at->second) == 0;
}

void Directory::answer_waiting(Out& out, Time now) {
  for (const auto& [who, name] : std::exchange(waiting_finds_, {}))
    out.append(on_find(who.first, who.second, name.first, name.second));
  for (const auto& [who, spawn] : std::exchange(waiting_spawns_, {}))
    out.append(on_spawn(spawn, now));
}

bool Directory::is_ending(const SpawnActor& message) const {
  const ActorSpec& spec = message.spec;
  const auto at = spec.name.empty() ? ending_.end() : ending_.find({spec.name_space, spec.name});
  return at != ending_.end() && at->second != spec.id;
}

/// Refuses the spawns that wait for a name in ending_ and for which `is_meant` returns true.
template <class Which>
void Directory::give_up_waiting(Which is_meant, const Error& why, Out& out) {
  std::erase_if(waiting_spawns_, [&](const auto& waiting) {
    if (ending_until_.count(waiting.first) == 0 || !is_meant(waiting.second)) return false;
    ending_until_.erase(waiting.first);
    reply_error(waiting.second, why, out);
    return true;
  });
}

/// Frees the names in ending_ whose actors' processes have ended, and answers the spawns that wait.
void Directory::free_names(Out& out) {
  const auto freed = std::erase_if(ending_, [this](const auto& name) {
    const auto at = tombstones_.find(name.second);
    return at == tombstones_.end() || !at->second.node;
  });
  if (freed != 0) answer_waiting(out, latest_);
}

Directory::Out Directory::on_spawn(const SpawnActor& message, Time now) {
  Out out;
  latest_ = std::max(latest_, now);
  if (is_of_ending_job(message, out)) return out;
  if (tombstones_.count(message.spec.id) == 0 && is_ending(message)) {
    const std::pair who{message.from, message.request};
    waiting_spawns_.insert_or_assign(who, message);
    ending_until_.try_emplace(who, now + options_.ending_name_kept);
    return out;
  }
  ending_until_.erase({message.from, message.request});
  const ActorSpec& spec = message.spec;
  const Name name{spec.name_space, spec.name};
  const auto tombstone = tombstones_.find(spec.id);
  const bool is_over = tombstone != tombstones_.end();
  if (is_over) tombstone->second.maker = {message.from, true};
  const bool may_live =
      message.again && !is_over && !awaited_.empty() && actors_.count(spec.id) == 0;
  if (may_live || (!is_over && !spec.name.empty() && is_unclaimed(name))) {
    waiting_spawns_.insert_or_assign({message.from, message.request}, message);
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
    if (spec.detached && !is_over) out.writes.put(actor_key(spec.id), encode(spec));
    if (!spec.name.empty() && !is_over) {
      names_[name] = spec.id;
      out.writes.put(
          name_key(spec.name_space, spec.name),
          RecordWriter(kNameFormat).bytes(spec.name_space).bytes(spec.name).id(spec.id).take());
    }
    killed = take_unknown(actor).killed;
  }
  if (reply.created) actors_.at(spec.id).maker = {message.from, true};
  describe(reply);
  if (message.from) out.after_sync.emplace_back(std::move(reply));
  if (!is_new) return out;
  Actor& actor = actors_.at(spec.id);
  if (killed || is_over)
    mark_dead(actor, is_over ? kOver : kKilled, std::nullopt, out);
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
  ErrorInfo info;
  info.code = Code::actor_unavailable;
  info.outcome = Outcome::not_executed;
  info.message = title(*actor.spec) + " is in its " + ordinal(actor.pace.count()) +
                 " life, which " + actor.pace.describe_end(now) + " with: " + cause.message();
  info.origin = cause.where();
  info.type = cause.info().type;
  info.cause = cause.shared_info();
  actor.trouble = std::make_shared<const ErrorInfo>(std::move(info));
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
  ErrorInfo info;
  if (cause) {
    info.origin = cause->where();
    info.type = cause->info().type;
    info.cause = cause->shared_info();
  }
  info.code = Code::actor_died;
  info.outcome = Outcome::not_executed;  // the outcome of calls that waited for the actor
  info.message = title(spec) + " is dead: " + why;
  if (cause && cause->code() == Code::infeasible) {
    info.code = Code::infeasible;
    info.message = cause->message();
  }
  if (info.origin.function.empty()) info.origin.function = spec.class_name;
  if (info.origin.node.empty() && actor.node) info.origin.node = actor.node.str();
  actor.error = std::make_shared<const ErrorInfo>(std::move(info));
  actor.state = ActorState::dead;
  forget_due(actor);
  if (spec.detached) out.writes.del(actor_key(spec.id));
  const auto name = names_.find({spec.name_space, spec.name});
  if (name != names_.end() && name->second == spec.id) {
    names_.erase(name);
    out.writes.del(name_key(spec.name_space, spec.name));
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
    unknown(id, now).killed = true;
    give_up_waiting([id](const SpawnActor& spawn) { return spawn.spec.id == id; },
                    Error(Code::actor_died, kKilled), out);
  }
  if (at == actors_.end() && may_restart && life != 0) unknown(id, now).killed_life = life;
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
  const auto may_live = tombstones_.find(spec.id);
  if (how == Stop::gracefully && !spec.name.empty() && may_live != tombstones_.end() &&
      may_live->second.node)
    ending_[{spec.name_space, spec.name}] = spec.id;
  mark_dead(actor, how == Stop::gracefully ? kUnheld : kKilled, std::nullopt, out);
}

/// Writes a tombstone if a later control would otherwise adopt or begin a life of the dead actor.
/// StopActorAt may be lost with this control, after watchers have heard that the actor is dead. So
/// may the news of its death, on its way to a node that reports an earlier life or repeats the
/// spawn. While nodes are awaited, any of them may be such a node.
void Directory::add_tombstone(const Actor& actor, bool may_live, Out& out, Stop how) {
  const ActorId id = actor.spec->id;
  Maker maker = actor.maker;
  for (const auto& [who, spawn] : waiting_spawns_)
    if (spawn.spec.id == id) maker = {spawn.from, true};
  if (!may_live && actor.reporters.empty() && !maker.node && awaited_.empty()) return;
  const NodeId node = may_live ? actor.node : NodeId{};
  const bool gracefully = how == Stop::gracefully;
  const bool starts = node && actor.state != ActorState::alive;
  if (!tombstones_
           .try_emplace(id, Tombstone{node, actor.epoch, actor.incarnation, actor.reporters, maker,
                                      gracefully, starts})
           .second)
    return;
  out.writes.put(
      kKilledPrefix + id.str(),
      RecordWriter(kKilledFormat).id(id).u64(actor.incarnation).boolean(gracefully).take());
}

/// Drops the tombstone if its process has ended and no node may report or ask for the actor.
/// Returns the tombstone that follows.
Directory::Tombstones::iterator Directory::drop_tombstone(Tombstones::iterator tombstone,
                                                          Out& out) {
  const Tombstone& one = tombstone->second;
  if (one.node || !one.reporters.empty() || one.maker.node || !awaited_.empty())
    return std::next(tombstone);
  out.writes.del(kKilledPrefix + tombstone->first.str());
  return tombstones_.erase(tombstone);
}

/// Notes in the actor's tombstone that a life has ended. The end of an earlier life than the
/// tombstone's changes nothing. `told_again`: the node may report this end to a later control.
void Directory::life_ended(ActorId id, std::uint64_t life, bool told_again, Out& out) {
  const auto at = tombstones_.find(id);
  if (at == tombstones_.end() || life < at->second.life) return;
  const NodeId node = std::exchange(at->second.node, {});
  if (node && told_again) at->second.reporters.insert(node);
  drop_tombstone(at, out);
  may_be_over(id, out);
  free_names(out);
}

/// Drops the node as host, reporter and maker of actors that its complete NodeHosts shows it is
/// not. `there`: the actors in the message; `ended`: those of them with a life that ended there. A
/// NodeHosts of an earlier registration than the last says nothing about repeated spawns.
void Directory::node_spoke(const NodeHosts& message, const std::set<ActorId>& there,
                           const std::set<ActorId>& ended, Out& out) {
  const NodeId node = message.node;
  const Epoch epoch = message.epoch;
  const auto last = registrations_.find(node);
  const bool has_asked = last == registrations_.end() || message.number >= last->second;
  for (auto& [id, actor] : actors_) {
    if (ended.count(id) == 0) actor.reporters.erase(node);
    if (has_asked && actor.maker.spoke(node)) actor.maker = {};
  }
  for (auto at = tombstones_.begin(); at != tombstones_.end(); at = drop_tombstone(at, out)) {
    auto& [id, tombstone] = *at;
    if (there.count(id) == 0 && tombstone.is_at(node, epoch) && !tombstone.starts)
      tombstone.node = {};
    if (ended.count(id) == 0) tombstone.reporters.erase(node);
    if (has_asked && tombstone.maker.spoke(node)) tombstone.maker = {};
  }
  free_names(out);
}

void Directory::on_registered(NodeId node, std::uint64_t number) {
  registrations_[node] = number;
  for (auto& [id, actor] : actors_)
    if (actor.maker.node == node) actor.maker.asked = false;
  for (auto& [id, tombstone] : tombstones_)
    if (tombstone.maker.node == node) tombstone.maker.asked = false;
}

void Directory::on_reset(NodeId node) {
  for (auto& [id, tombstone] : tombstones_)
    if (tombstone.node == node) tombstone.starts = false;
}

Directory::Out Directory::on_handles_gone(ActorId id) {
  Out out;
  const auto at = actors_.find(id);
  if (at == actors_.end() && !awaited_.empty())
    unknown(id, Time{}).killed = true;  // it ends when an awaited node reports it
  if (at == actors_.end())
    give_up_waiting(
        [id](const SpawnActor& spawn) { return spawn.spec.id == id && !spawn.spec.detached; },
        Error(Code::actor_died, kUnheld), out);
  if (at == actors_.end() || at->second.state == ActorState::dead || at->second.spec->detached)
    return out;
  end(at->second, Stop::gracefully, out);
  return out;
}

Directory::Out Directory::on_node_dead(NodeId node, Epoch epoch, const std::string& why, Time now) {
  Out out;
  const Error cause(Code::worker_died, "its node " + node.str() + " died: " + why,
                    Outcome::unknown);
  std::vector<ActorId> ids;
  for (auto& [id, actor] : actors_) {
    actor.watchers.erase(node);
    if (actor.node == node && actor.epoch == epoch && actor.state != ActorState::dead)
      ids.push_back(id);
  }
  for (auto& [id, asked] : unknown_) asked.watchers.erase(node);
  for (const ActorId id : ids) {
    Actor& actor = actors_.at(id);
    const bool lived = actor.state == ActorState::alive || actor.only_ended;
    fail(actor, cause.message(), cause, lived, out, now);
  }
  // The dead node needs no answers, and no other process could use the actors that it asked for.
  give_up_waiting([node](const SpawnActor& spawn) { return spawn.from == node; }, cause, out);
  std::erase_if(waiting_finds_, [&](const auto& find) { return find.first.first == node; });
  std::erase_if(waiting_spawns_, [&](const auto& waiting) {
    return waiting.first.first == node && !waiting.second.spec.detached;
  });
  for (auto& [who, spawn] : waiting_spawns_)
    if (who.first == node) spawn.from = {};
  on_reset(node);
  on_registered(node, 0);  // a dead node repeats no spawns
  registrations_.erase(node);
  node_spoke({node, epoch, control_epoch_, {}}, {}, {}, out);
  stop_awaiting(node, epoch, out, now);
  answer_waiting(out, now);
  look_at_ending_jobs(out);
  return out;
}

// --- after control's restart -------------------------------------------------------------------

Directory::Out Directory::on_node_hosts(const NodeHosts& message, Time now) {
  Out out;
  const NodeId node = message.node;
  const Epoch epoch = message.epoch;
  if (message.control_epoch != control_epoch_ && !TROUPE_MUTANT("directory.hosts_of_old_control"))
    return out;
  std::set<ActorId> there, ended;
  for (const HostedActor& actor : message.actors) {
    there.insert(actor.spec.id);
    if (actor.ended) ended.insert(actor.spec.id);
    adopt(actor, node, epoch, out, now);
  }
  // An ActorGone may have been lost with the earlier connection.
  std::vector<ActorId> lost;
  for (const auto& [id, actor] : actors_)
    if (actor.state == ActorState::alive && actor.node == node && actor.epoch == epoch &&
        there.count(id) == 0)
      lost.push_back(id);
  const Error without(Code::worker_died, "its node registered again without it", Outcome::unknown);
  for (const ActorId id : lost) fail(actors_.at(id), without.message(), without, true, out, now);
  node_spoke(message, there, ended, out);
  stop_awaiting(node, epoch, out, now);
  answer_waiting(out, now);
  look_at_ending_jobs(out);
  return out;
}

/// Takes one life of NodeHosts into the table, or stops it if the actor is dead or has a later
/// life.
void Directory::adopt(const HostedActor& hosted, NodeId node, Epoch epoch, Out& out, Time now) {
  const ActorId id = hosted.spec.id;
  if (const auto killed = tombstones_.find(id); killed != tombstones_.end()) {
    Tombstone& tombstone = killed->second;
    if (hosted.ended) tombstone.reporters.insert(node);
    if (hosted.incarnation >= tombstone.life && (!hosted.ended || tombstone.life != 0)) {
      tombstone.node = hosted.ended ? NodeId{} : node;
      tombstone.epoch = epoch;
      tombstone.life = hosted.incarnation;
    }
    const char* why = tombstone.gracefully ? kUnheld : kKilled;
    if (!hosted.ended)
      out.after_sync.emplace_back(
          StopActorAt{node, epoch, id, hosted.incarnation, tombstone.gracefully, why, true});
    if (actors_.count(id) != 0) return;
    Actor& actor = actors_[id];
    actor.spec = std::make_shared<const ActorSpec>(hosted.spec);
    actor.incarnation = hosted.incarnation;
    take_unknown(actor);
    mark_dead(actor, why, std::nullopt, out);
    return;
  }
  const auto at = actors_.find(id);
  if (at != actors_.end()) {
    Actor& known = at->second;
    if (hosted.ended && known.state != ActorState::dead) known.reporters.insert(node);
    const bool same = known.incarnation == hosted.incarnation && known.node == node;
    if (same && known.state != ActorState::dead) {  // the node has only registered again
      known.started_once = known.started_once || hosted.worker != 0;
      if (!hosted.ended && known.killed_life >= known.incarnation)
        stop(known, kKilled, out, Stop::may_restart);  // the first StopActorAt may be lost
      return;
    }
    if (known.state == ActorState::dead || known.incarnation >= hosted.incarnation) {
      if (!hosted.ended)
        out.after_sync.emplace_back(StopActorAt{node, epoch, id, hosted.incarnation, false,
                                                "control knows it as dead or living elsewhere",
                                                known.state == ActorState::dead});
      return;
    }
    if (!known.only_ended) stop(known, "a later life of it was found", out, Stop::may_restart);
  }
  Actor& actor = actors_[id];
  forget_due(actor);
  actor.spec = std::make_shared<const ActorSpec>(hosted.spec);
  const bool lived = hosted.worker != 0;  // else it is being made
  actor.started_once = lived || hosted.restarts != 0;
  actor.only_ended = hosted.ended;
  if (hosted.ended) actor.reporters.insert(node);
  actor.end.reset();
  actor.state = lived && !hosted.ended ? ActorState::alive
                : actor.started_once   ? ActorState::restarting
                                       : ActorState::placing;
  actor.incarnation = hosted.incarnation;
  actor.node = node;
  actor.epoch = epoch;
  actor.worker = hosted.worker;
  actor.restarts.assign(std::min<std::size_t>(hosted.restarts, 1000), now);
  actor.pace = {};
  actor.pace.begins();
  if (lived) actor.pace.lives(now);
  actor.trouble.reset();
  const Unknown asked = take_unknown(actor);
  tell(actor, out);
  const std::uint64_t killed_life =
      std::max(std::exchange(actor.killed_life, 0), asked.killed_life);
  if (asked.killed)
    out.append(on_kill(id, false, now));
  else if (hosted.ended)
    actor.killed_life = killed_life;
  else if (killed_life >= hosted.incarnation)
    out.append(on_kill(id, true, now, killed_life));
}

/// Ends the wait for a node. After the last one resolve_unclaimed() runs.
void Directory::stop_awaiting(NodeId node, Epoch epoch, Out& out, Time now) {
  if (awaited_.erase({node, epoch}) != 0 && awaited_.empty()) resolve_unclaimed(out, now);
}

Directory::Out Directory::start() {
  Out out;
  if (awaited_.empty()) resolve_unclaimed(out, Time{});  // the time matters only for ended lives
  return out;
}

/// Runs when no node is awaited: an actor that no node hosts is lost. Detached actors begin a new
/// life, ends that waited are judged, and names of unknown actors are free again.
void Directory::resolve_unclaimed(Out& out, Time now) {
  for (auto at = tombstones_.begin(); at != tombstones_.end();) at = drop_tombstone(at, out);
  for (auto& [id, actor] : actors_) {
    if (actor.state != ActorState::pending) continue;
    if (const auto end = std::exchange(actor.end, std::nullopt)) {
      fail(actor, end->first, end->second, true, out, now);
      continue;
    }
    actor.started_once = true;  // it may have had a life that no node remembers
    place(actor, out);
  }
  for (auto name = names_.begin(); name != names_.end();) {
    if (actors_.count(name->second) != 0) {
      ++name;
      continue;
    }
    out.writes.del(name_key(name->first.first, name->first.second));
    name = names_.erase(name);
  }
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
    unknown(id, now).watchers.insert(watcher);
  }
  out.after_sync.emplace_back(ActorUpdateTo{watcher, std::move(location)});
  return out;
}

Directory::Unknown& Directory::unknown(ActorId id, Time now) {
  const auto [at, fresh] = unknown_.try_emplace(id);
  if (fresh) {
    at->second.since = now;
    unknown_since_.insert({now, id});
  }
  return at->second;
}

/// Turns the watchers of the unknown actor into watchers of this one. Returns the unknown entry
/// with the kills that it remembers.
Directory::Unknown Directory::take_unknown(Actor& actor) {
  auto asked = unknown_.extract(actor.spec->id);
  if (!asked) return {};
  unknown_since_.erase({asked.mapped().since, asked.key()});
  actor.watchers.merge(asked.mapped().watchers);
  return std::move(asked.mapped());
}

Time Directory::unknown_until(Time since) const {
  return std::min(since + options_.unknown_longest,
                  std::max(since, all_heard_since_) + options_.unknown_kept);
}

void Directory::expire_unknown(Time now, Out& out) {
  if (!awaited_.empty()) return;  // an awaited node may still report the actor
  while (!unknown_since_.empty() && unknown_until(unknown_since_.begin()->first) <= now) {
    const ActorId id = unknown_since_.begin()->second;
    unknown_since_.erase(unknown_since_.begin());
    ActorLocation location;
    location.actor = id;
    location.state = ActorState::dead;
    location.error = Error(Code::actor_died,
                           "the actor is not known: it died long ago, or with its node while "
                           "control was restarting, or nobody has created it",
                           Outcome::unknown)
                         .shared_info();
    const auto asked = unknown_.extract(id);
    for (const NodeId watcher : asked.mapped().watchers)
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
  const auto asked = unknown_.find(id);
  if (asked != unknown_.end()) asked->second.watchers.erase(watcher);
  if (const auto dead = tombstones_.find(id); dead != tombstones_.end()) {
    dead->second.reporters.erase(watcher);
    if (dead->second.maker.node == watcher) dead->second.maker = {};
    drop_tombstone(dead, out);
  }
  return out;
}

Directory::Out Directory::on_find(NodeId from, std::uint64_t request, const std::string& name_space,
                                  const std::string& name) {
  Out out;
  if (is_unclaimed({name_space, name})) {
    waiting_finds_[{from, request}] = {name_space, name};
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
  for (auto at = ending_until_.begin(); at != ending_until_.end();) {
    const auto spawn = waiting_spawns_.find(at->first);
    const bool waits = spawn != waiting_spawns_.end();
    if (waits && at->second > now) {
      ++at;
      continue;
    }
    if (waits) {
      reply_error(spawn->second,
                  Error(Code::unavailable,
                        "the name \"" + spawn->second.spec.name +
                            "\" is still that of an actor which nobody holds any more: its process "
                            "has not ended within " +
                            std::to_string(kept.count()) +
                            " s, and is killed 10 s after the actor was told to end; try again, or "
                            "choose another"),
                  out);
      waiting_spawns_.erase(spawn);
    }
    at = ending_until_.erase(at);
  }
  return out;
}

std::optional<Time> Directory::next_deadline() const {
  std::optional<Time> next = ending_jobs_.next_deadline();
  for (const auto& [who, until] : ending_until_) next = std::min(next.value_or(until), until);
  if (!due_.empty()) next = std::min(next.value_or(due_.begin()->first), due_.begin()->first);
  if (awaited_.empty() && !unknown_since_.empty()) {
    const Time until = unknown_until(unknown_since_.begin()->first);
    next = std::min(next.value_or(until), until);
  }
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
