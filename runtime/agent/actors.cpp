#include "troupe/runtime/agent/actors.hpp"

#include "troupe/runtime/agent/resource_demand.hpp"

#include <algorithm>
#include <utility>

namespace troupe::agent {
namespace {

control::ActorSpec spec_of(const wire::CreateActor& message, JobId job, NodeId self) {
  control::ActorSpec spec;
  spec.id = message.actor;
  spec.job = job;
  spec.name = message.name;
  spec.name_space = message.name_space;
  spec.class_name = message.class_name;
  spec.lifetime = message.lifetime;
  spec.owner = self;
  spec.demand = demand_of(message.demand);
  // Control refuses a whole message with fewer restarts than -1 or a negative window.
  spec.max_restarts = std::max(message.max_restarts, -1);
  constexpr auto kLongest = static_cast<std::uint64_t>(Duration::max().count());
  spec.restart_window =
      Duration(static_cast<Duration::rep>(std::min(message.restart_window_ns, kLongest)));
  spec.detached = message.detached;
  return spec;
}

/// How often a question about a name is repeated while the answer names an actor that is ending.
constexpr std::uint32_t kMostQuestions = 100;
/// Most bytes of one NodeHosts page: well below what a Link takes, whatever texts the fields have.
constexpr std::size_t kPageBytes = 256 << 10;
constexpr std::size_t kPageRows = 1024;
constexpr std::uint64_t kLast = ~std::uint64_t{0};

std::size_t size_of(const control::ActorSpec& spec) {
  std::size_t size = 512 + spec.name.size() + spec.name_space.size() + spec.class_name.size() +
                     spec.creation.size();
  for (const auto& [key, value] : spec.demand.labels) size += key.size() + value.size() + 32;
  for (const auto& [name, amount] : spec.demand.need.custom) size += name.size() + 32;
  return size;
}

BlobView bytes_of(const std::string& text) {
  return BlobView(reinterpret_cast<const std::byte*>(text.data()), text.size());
}

wire::StartActor order_for(wire::CreateActor& create, std::uint64_t life, bool restarted) {
  wire::StartActor start;
  start.actor = create.actor;
  start.lifetime = create.lifetime;
  start.incarnation = life;
  start.max_concurrency = create.max_concurrency;
  start.restarted = restarted;
  start.name = std::move(create.name);
  start.creation = std::move(create.creation);
  return start;
}

/// Returns the error of a constructor as control may get it. A constructor that waits for an
/// infeasible task throws `infeasible`; only the agent itself may say that of the actor.
std::shared_ptr<const ErrorInfo> thrown(const std::shared_ptr<const ErrorInfo>& error) {
  if (error->code != Code::infeasible) return error;
  ErrorInfo info = *error;
  info.code = Code::task_failed;
  info.cause = error;
  return std::make_shared<const ErrorInfo>(std::move(info));
}

wire::FoundActor found(std::uint64_t request, const control::ActorReply& reply) {
  wire::FoundActor answer;
  answer.request = request;
  answer.found = static_cast<bool>(reply.actor);
  answer.actor = reply.actor;
  answer.lifetime = reply.lifetime;
  answer.class_name = reply.class_name;
  answer.error = reply.error;
  return answer;
}

}  // namespace

// --- made here

void ActorHost::create(const wire::CreateActor& message, BlobView payload, JobId job,
                       ProcessIndex process, BytesByNode near) {
  const auto [made, fresh] = made_.try_emplace(message.actor);
  if (!fresh) return;
  made->second.creation = message.creation;
  made->second.detached = message.detached;
  wire::Creation creation{message, {}};
  for (const wire::Value& argument : message.creation.arguments)
    wire::for_each_ref(
        argument, [&](const ObjectId& id) { creation.refs.push_back({id, out_.owner_of(id)}); });
  const Blob bytes = wire::encode_creation(creation, payload);
  control::SpawnActor spawn;
  spawn.from = self_;
  spawn.request = ++next_request_;
  spawn.spec = spec_of(message, job, self_);
  spawn.spec.demand.locality = std::move(near);
  spawn.spec.creation.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  spawn.get_if_exists = message.get_if_exists;
  Spawning& spawning = spawning_[spawn.request];
  spawning_of_[message.actor] = spawn.request;
  spawning.process = process;
  spawning.request = message.request;
  spawning.message = std::move(spawn);
  say(spawning);
}

void ActorHost::say(Spawning& spawning) {
  ++spawning.said;
  spawning.may_be_lost = false;
  control_.send(spawning.message);
}

void ActorHost::find(ProcessIndex process, const wire::FindActor& message) {
  const std::uint64_t request = ++next_request_;
  ask_again(request, questions_[request] = {process, message});
}

void ActorHost::ask_again(std::uint64_t request, const Question& question) {
  control_.send(control::FindActor{request, question.find.name_space, question.find.name});
}

/// Returns whether the actor in the answer was made here and has no handle left. Control answered
/// before it got HandlesGone, so the answer to a repeated question takes that into account.
bool ActorHost::is_ending(const control::ActorReply& reply) const {
  if (reply.error || !reply.actor || reply.created || reply.owner != self_) return false;
  const auto made = made_.find(reply.actor);
  return made == made_.end() || made->second.handles_gone;
}

void ActorHost::replied(const control::ActorReply& reply) {
  const bool ending = is_ending(reply);
  if (const auto spawn = spawning_.find(reply.request); spawn != spawning_.end()) {
    // A detached actor is not asked for again: its process may have ended, and it would stay.
    const bool again = spawn->second.request != 0 && !spawn->second.message.spec.detached;
    if (ending && again && spawn->second.said < kMostQuestions) return say(spawn->second);
    return spawn_replied(spawn->second, reply);
  }
  if (const auto asked = questions_.find(reply.request);
      ending && asked != questions_.end() && ++asked->second.asked < kMostQuestions)
    return ask_again(reply.request, asked->second);
  if (kills_.asked(reply.request)) {
    // `unavailable`: this node is not registered; registered() sends the kill again.
    if (reply.error && reply.error->code != Code::unavailable)
      kill_refused(kills_.refused(reply.request), reply.error);
    return;
  }
  const auto question = questions_.extract(reply.request);
  if (question)
    out_.answer(question.mapped().process, found(question.mapped().find.request, reply),
                reply.owner);
}

void ActorHost::spawn_replied(Spawning& spawning, const control::ActorReply& reply) {
  const ActorId actor = spawning.message.spec.id;
  const bool again = std::exchange(spawning.replied, true);
  const ProcessIndex process = spawning.process;
  if (const std::uint64_t request = std::exchange(spawning.request, 0); request != 0)
    out_.answer(process, found(request, reply), reply.owner);
  if (reply.created) {
    ask_for(actor);  // to learn when it lives, and when its arguments are not needed any more
    // A HandlesGone that came before control knew the actor had no effect.
    if (const auto made = made_.find(actor); made != made_.end() && made->second.handles_gone)
      control_.send(control::HandlesGone{actor});
    return;
  }
  // Another actor has the name. The process that asked finds it by that name, unless an earlier
  // answer said that its own actor was made: then its own is lost.
  std::shared_ptr<const ErrorInfo> error = reply.error;
  if (!error && again)
    error =
        Error(Code::actor_died, "the actor was lost with control, and its name is another's now",
              Outcome::not_executed)
            .shared_info();
  const bool may_be_made = spawning.said > 1;  // since another copy of the message may be accepted
  forget_spawning(actor);
  drop_made(actor);
  if (error) {
    control::ActorLocation never;
    never.actor = actor;
    never.state = control::ActorState::dead;
    never.error = error;
    located(never, {});
  }
  if (!may_be_made) return;
  kill(actor, false);
  watched_.at(actor).told_end = true;  // control keeps the tombstone for a node that asked for it
}

/// Ends the spawn: control has told of the actor's life or death. The answer to the spawn may have
/// been lost, so the process that asked gets it now.
void ActorHost::was_made(ActorId actor) {
  const auto at = spawning_of_.find(actor);
  if (at == spawning_of_.end()) return;
  const Spawning& spawning = spawning_.at(at->second);
  if (spawning.request != 0) {
    control::ActorReply reply;
    reply.actor = actor;
    reply.class_name = spawning.message.spec.class_name;
    reply.lifetime = spawning.message.spec.lifetime;
    out_.answer(spawning.process, found(spawning.request, reply), self_);
  }
  forget_spawning(actor);
}

void ActorHost::forget_spawning(ActorId actor) {
  if (const auto at = spawning_of_.extract(actor)) spawning_.erase(at.mapped());
}

void ActorHost::drop_made(ActorId actor) {
  const auto made = made_.extract(actor);
  if (made) out_.drop_creation(made.mapped().creation);
}

void ActorHost::unreferenced(ActorId actor) {
  const auto made = made_.find(actor);
  if (made == made_.end() || made->second.detached) return;
  made->second.handles_gone = true;
  control_.send(control::HandlesGone{actor});
}

/// The killer waits for the actor's end as a watcher: it gets an update with the refusal instead.
void ActorHost::kill_refused(const ActorKills::Kill& kill,
                             const std::shared_ptr<const ErrorInfo>& why) {
  const ActorId actor = kill.actor;
  const auto watched = watched_.find(actor);
  if (watched == watched_.end()) return;
  if (watched->second.watchers.erase(kill.killer) != 0) {
    wire::ActorUpdate update;
    update.actor = actor;
    update.state = wire::ActorState::dead;
    update.error = why;
    out_.publish(kill.killer, update);
  }
  if (watched->second.watchers.empty()) stop_watching(watched);
}

void ActorHost::kill(ActorId actor, bool may_restart, ProcessIndex killer, JobId job) {
  const Watched& watched = ask_for(actor);  // its updates say when the kill need not be sent again
  tell_killed_life(
      actor, kills_.kill({actor, job, killer}, may_restart, watched.newest, next_request_), killer);
}

void ActorHost::tell_killed_life(ActorId actor, std::uint64_t life, ProcessIndex killer) {
  if (life == 0 || killer == 0) return;
  wire::ActorUpdate update;
  update.actor = actor;
  update.state = wire::ActorState::restarting;
  update.incarnation = life;
  out_.publish(killer, update);
}

/// Handles that control knows of this life, alive or about to be.
void ActorHost::heard_of(ActorId actor, std::uint64_t incarnation) {
  Watched& watched = watched_.at(actor);
  watched.newest = std::max(watched.newest, incarnation);
  for (const ProcessIndex killer : kills_.heard_of(actor, incarnation))
    tell_killed_life(actor, incarnation, killer);
}

// --- hosted here

void ActorHost::start(const control::StartActorAt& order, Time now) {
  // The upper half of an incarnation is the epoch of the control that gave it.
  if (order.incarnation >> 32 < control_epoch_ || (epoch_ != 0 && order.epoch != epoch_)) {
    control_.send(control::ActorStartFailed{order.spec->id, order.incarnation, nullptr});
    return;
  }
  const auto [life, fresh] = lives_.try_emplace(order.incarnation);
  if (!fresh) return;
  life->second.spec = order.spec;
  life->second.restarted = order.restarted;
  life->second.restarts = order.restarts;
  life->second.since = now;
  out_.need_worker(order.incarnation, order.spec->demand, order.spec->job);
}

void ActorHost::worker_ready(std::uint64_t incarnation, ProcessIndex worker,
                             std::vector<std::int32_t> gpus) {
  const auto at = lives_.find(incarnation);
  if (at == lives_.end()) return out_.release_worker(incarnation);
  Life& life = at->second;
  auto creation = wire::decode_creation(bytes_of(life.spec->creation));
  if (!creation) {
    start_failed(at, creation.error().shared_info());
    return;
  }
  life.worker = worker;
  by_worker_[worker] = incarnation;
  wire::StartActor order = order_for(creation->message.create, incarnation, life.restarted);
  order.gpus = std::move(gpus);
  out_.start_actor(worker, order, creation->payload, creation->message.refs);
}

void ActorHost::no_worker(std::uint64_t incarnation, const Error& why) {
  const auto at = lives_.find(incarnation);
  if (at != lives_.end()) start_failed(at, why.shared_info());
}

void ActorHost::worker_ended_early(std::uint64_t incarnation) {
  const auto at = lives_.find(incarnation);
  if (at == lives_.end()) return;  // the life was stopped meanwhile and needs no worker
  const control::ActorSpec& spec = *at->second.spec;
  out_.need_worker(incarnation, spec.demand, spec.job);
}

void ActorHost::created(ProcessIndex worker, const wire::ActorCreated& message) {
  const auto at = by_worker_.find(worker);
  if (at == by_worker_.end() || at->second != message.incarnation) return;
  const auto life = lives_.find(at->second);
  if (life->second.alive) return;
  if (message.error && life->second.restarted) return gone(life, Error(*thrown(message.error)));
  if (message.error) return start_failed(life, thrown(message.error));
  life->second.alive = true;
  control_.send(control::ActorStarted{life->second.spec->id, life->first, worker});
}

void ActorHost::start_failed(Lives::iterator life, std::shared_ptr<const ErrorInfo> error) {
  const std::uint64_t incarnation = life->first;
  control_.send(control::ActorStartFailed{life->second.spec->id, incarnation, std::move(error)});
  if (life->second.worker != 0) by_worker_.erase(life->second.worker);
  lives_.erase(life);
  out_.release_worker(incarnation);
}

void ActorHost::on_tick(Time now) {
  for (auto& [incarnation, life] : lives_) {
    if (life.kill_at > now) continue;
    life.kill_at = Time::max();
    out_.kill_worker(life.worker);
  }
}

Time ActorHost::next_deadline() const {
  Time next = Time::max();
  for (const auto& [incarnation, life] : lives_) next = std::min(next, life.kill_at);
  return next;
}

void ActorHost::stop(const control::StopActorAt& order, Time now) {
  const auto at = lives_.find(order.incarnation);
  if (at == lives_.end()) return;  // its ActorGone is on its way to control
  at->second.ending = order.graceful || order.for_good;
  const ProcessIndex worker = at->second.worker;
  if (worker == 0)
    return gone(at, Error(Code::worker_died, order.why + " before it had a process"));
  if (order.graceful) {
    at->second.kill_at = std::min(at->second.kill_at, now + kEndGrace);
    out_.end_worker(worker);
  } else {
    out_.kill_worker(worker);
  }
}

void ActorHost::worker_died(ProcessIndex worker, const Error& reason) {
  forget_watcher(worker);
  const auto at = by_worker_.find(worker);
  if (at == by_worker_.end()) return;
  gone(lives_.find(at->second), reason);
}

void ActorHost::gone(Lives::iterator life, const Error& reason) {
  const std::uint64_t incarnation = life->first;
  Life& over = life->second;
  const ActorId actor = over.spec->id;
  control::ActorGone news{actor, incarnation, reason.shared_info(), over.ending};
  control_.send(news);
  if (over.worker != 0) by_worker_.erase(over.worker);
  // Control knew of the earlier lives' ends, or it would not have started this one.
  ended_.erase(ended_.lower_bound({actor, 0}), ended_.lower_bound({actor, incarnation}));
  ended_.insert_or_assign({actor, incarnation}, Ended{std::move(over), std::move(news)});
  lives_.erase(life);
  ask_for(actor).told_end = true;  // to learn whether another life follows
  out_.release_worker(incarnation);
}

bool ActorHost::hosts(ProcessIndex worker, ActorId actor, std::uint64_t incarnation) const {
  const auto at = lives_.find(incarnation);
  return at != lives_.end() && at->second.alive && at->second.worker == worker &&
         at->second.spec->id == actor;
}

ActorId ActorHost::actor_on(ProcessIndex worker) const {
  const auto life = by_worker_.find(worker);
  const auto at = life == by_worker_.end() ? lives_.end() : lives_.find(life->second);
  return at == lives_.end() ? ActorId{} : at->second.spec->id;
}

const scheduling::ResourceDemand* ActorHost::demand_of(ActorId actor) const {
  const auto at = spawning_of_.find(actor);
  return at == spawning_of_.end() ? nullptr : &spawning_.at(at->second).message.spec.demand;
}

std::optional<ActorHost::Beginning> ActorHost::beginning_of(ActorId actor) const {
  for (const auto& [number, life] : lives_)
    if (!life.alive && life.spec->id == actor) return Beginning{number, life.worker != 0};
  return std::nullopt;
}

// --- watched here

ActorHost::Watched& ActorHost::ask_for(ActorId actor) {
  const auto [at, fresh] = watched_.try_emplace(actor);
  if (!fresh) return at->second;
  const auto spawning = spawning_of_.find(actor);
  if (spawning == spawning_of_.end() || !spawning_.at(spawning->second).may_be_lost)
    control_.send(control::WatchActor{actor, true});
  return at->second;
}

void ActorHost::watch(ActorId actor, ProcessIndex process) {
  Watched& watched = ask_for(actor);
  watched.watchers.insert(process);
  if (watched.alive) tell(process, *watched.alive);
  if (watched.waits) out_.publish(process, *watched.waits);
}

void ActorHost::located(const control::ActorLocation& location, Time now) {
  const auto at = watched_.find(location.actor);
  if (at == watched_.end()) return;
  Watched& watched = at->second;
  heard_of(location.actor, location.incarnation);
  switch (location.state) {
    case control::ActorState::alive:
      watched.alive = location;
      watched.waits.reset();
      break;
    case control::ActorState::dead: break;
    default:
      // Only the end of a life changes something. A control that was restarted may say `pending` of
      // an actor of which it does not know yet that it lives.
      if (watched.alive ? location.incarnation <= watched.alive->incarnation : !location.error)
        return;
      watched.alive.reset();
      watched.waits = waiting(location, now);
      for (const ProcessIndex watcher : watched.watchers) out_.publish(watcher, *watched.waits);
      return;
  }
  for (const ProcessIndex watcher : watched.watchers) tell(watcher, location);
  if (location.state == control::ActorState::dead) dead(location.actor);
  if (location.state == control::ActorState::alive) lives(location.actor, location.incarnation);
}

/// Forgets the messages that led to this life: they need not be sent again.
void ActorHost::lives(ActorId actor, std::uint64_t incarnation) {
  was_made(actor);
  ended_.erase(ended_.lower_bound({actor, 0}), ended_.lower_bound({actor, incarnation}));
  const auto at = watched_.find(actor);
  if (at->second.watchers.empty()) stop_watching(at);
}

void ActorHost::silent(NodeId node, bool silent) {
  if (silent ? silent_.insert(node).second : silent_.erase(node) != 0) out_of_reach(node);
}

void ActorHost::out_of_reach(NodeId node) {
  for (const auto& [actor, watched] : watched_)
    if (watched.alive && watched.alive->node == node)
      for (const ProcessIndex watcher : watched.watchers) tell(watcher, *watched.alive);
}

void ActorHost::tell(ProcessIndex watcher, const control::ActorLocation& location) {
  wire::ActorUpdate update;
  update.actor = location.actor;
  update.incarnation = location.incarnation;
  switch (location.state) {
    case control::ActorState::alive:
      if (location.node != self_)
        return out_.publish_remote(watcher, location, silent_.count(location.node) != 0);
      update.state = wire::ActorState::alive;
      update.worker = location.worker;
      break;
    case control::ActorState::dead:
      update.state = wire::ActorState::dead;
      update.error = location.error;
      break;
    default: return;
  }
  out_.publish(watcher, update);
}

/// Returns the update for watchers while they wait for the next life.
wire::ActorUpdate ActorHost::waiting(const control::ActorLocation& location, Time now) const {
  wire::ActorUpdate update;
  update.actor = location.actor;
  update.state = wire::ActorState::pending;
  update.incarnation = location.incarnation;
  update.error = location.error;
  if (location.retry_in > Duration::zero() && location.retry_in < Time::max() - now)
    update.retry_at_ns =
        static_cast<std::uint64_t>((now + location.retry_in).time_since_epoch().count());
  return update;
}

void ActorHost::dead(ActorId actor) {
  if (watched_.at(actor).told_end || made_.count(actor) != 0)
    control_.send(control::WatchActor{actor, false});  // nothing is sent about it again
  watched_.erase(actor);
  kills_.forget(actor);
  was_made(actor);
  ended_.erase(ended_.lower_bound({actor, 0}), ended_.upper_bound({actor, kLast}));
  drop_made(actor);
}

/// Stops watching, unless something here depends on the actor's fate. Returns the next entry.
ActorHost::WatchedActors::iterator ActorHost::stop_watching(WatchedActors::iterator watched) {
  const ActorId actor = watched->first;
  const auto ended = ended_.lower_bound({actor, 0});
  if (made_.count(actor) != 0 || kills_.awaits(actor) ||
      (ended != ended_.end() && ended->first.first == actor))
    return std::next(watched);
  control_.send(control::WatchActor{actor, false});
  return watched_.erase(watched);
}

void ActorHost::forget_watcher(ProcessIndex process) {
  for (auto at = watched_.begin(); at != watched_.end();) {
    const bool last = at->second.watchers.erase(process) != 0 && at->second.watchers.empty();
    at = last ? stop_watching(at) : std::next(at);
  }
}

// --- control has been restarted

void ActorHost::registered(Epoch epoch, Epoch control_epoch, std::uint64_t number, Time now) {
  const Epoch before = std::exchange(control_epoch_, control_epoch);
  const bool another = before != 0 && before != control_epoch;
  epoch_ = epoch;
  // Kills go before the spawns: an actor that was made and killed under an earlier control must not
  // be made again.
  kills_.say_ends_again();
  for (auto& [request, spawning] : spawning_) {
    spawning.message.again |= another;
    say(spawning);
  }
  tell_hosted(number, now);
  for (const auto& [which, ended] : ended_) control_.send(ended.news);
  for (const auto& [actor, watched] : watched_) control_.send(control::WatchActor{actor, true});
  for (const auto& [actor, made] : made_)
    if (made.handles_gone) control_.send(control::HandlesGone{actor});
  kills_.say_lives_again();
  for (const auto& [request, question] : questions_) ask_again(request, question);
}

void ActorHost::control_lost() noexcept {
  for (auto& [request, spawning] : spawning_) spawning.may_be_lost = true;
}

/// Sends NodeHosts with all lives, also those that ended, in pages that a Link takes.
void ActorHost::tell_hosted(std::uint64_t number, Time now) {
  control::NodeHosts page;
  page.node = self_;
  page.epoch = epoch_;
  page.control_epoch = control_epoch_;
  page.number = number;
  std::size_t bytes = 0;
  const auto add = [&](const Life& life, std::uint64_t incarnation, bool ended) {
    const std::size_t size = size_of(*life.spec);
    if (!page.actors.empty() && (bytes + size > kPageBytes || page.actors.size() >= kPageRows)) {
      page.more = true;
      control_.send(page);
      ++page.page;
      page.more = false;
      page.actors.clear();
      bytes = 0;
    }
    bytes += size;
    // Restarts before a life that has lasted longer than the window do not count any more.
    const Duration window = life.spec->restart_window;
    const bool forgiven = life.alive && window > Duration::zero() && now - life.since >= window;
    page.actors.push_back({*life.spec, incarnation, life.alive ? life.worker : 0,
                           forgiven ? 0 : life.restarts, ended});
  };
  for (const auto& [incarnation, life] : lives_) add(life, incarnation, false);
  for (const auto& [which, ended] : ended_) add(ended.life, which.second, true);
  control_.send(std::move(page));
}

}  // namespace troupe::agent
