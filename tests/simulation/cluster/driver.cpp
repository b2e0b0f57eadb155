/// The program of a simulated driver: a seeded stream of submits, calls, spawns and kills, and
/// the checks of their results.
#include "tests/simulation/cluster/program.hpp"

#include <algorithm>
#include <tuple>

namespace troupe::sim::cluster {
namespace {
using namespace std::chrono_literals;
constexpr const char* kShared = "name0";  // one of the names that every driver uses
}  // namespace

void Program::begin_driver(const Workload& workload, std::uint64_t number, Time now) {
  is_driver_ = true;
  workload_ = workload;
  number_ = number;
  next_action_ = now;
  if (workload_.shares) share_one();
  process_.machine().wake(process_.index(), 1ms);
}

/// Returns whether the driver has actions left. Results under way count as calls, since their
/// tasks may make further calls.
bool Program::has_more() const {
  const std::uint64_t calls = process_.machine().truth().started_calls + results_.size();
  const bool enough = calls >= workload_.least_calls;
  return done_ < (enough ? workload_.fewest_actions : 6 * workload_.actions);
}

void Program::drive() {
  if (finished_) return;
  const Time now = process_.machine().now();
  check_results();
  const auto due =
      std::partition(kills_.begin(), kills_.end(), [&](const Kill& kill) { return kill.at > now; });
  for (auto at = due; at != kills_.end(); ++at)
    for (KnownActor& actor : actors_)
      if (actor.id == at->actor) kill_for_good(actor);
  kills_.erase(due, kills_.end());
  if (now >= next_action_) {
    const auto mean = static_cast<std::uint64_t>(workload_.between.count());
    next_action_ = now + Duration(1'000 + process_.machine().random().below(2 * mean));
    if (pester_ > 0) {
      --pester_;
      const auto every = static_cast<std::uint64_t>(pester_every_.count());
      next_action_ = now + Duration(500'000 + process_.machine().random().below(every));
      for (KnownActor& actor : actors_)
        if (actor.id == pestered_) call(actor, true);
    } else if (has_more()) {
      one_action();
    } else if (workload_.lingers && !lingered_) {
      linger(now);
    }
  }
  const bool winds_up = !has_more() && (!workload_.lingers || lingered_);
  if (winds_up && kills_.empty() && pester_ == 0) wind_up();
  if (finished_) return;
  // Results and answers wake the driver by themselves. This is the time of its own next action.
  Duration wait = std::max<Duration>(next_action_ - now, winds_up ? 100ms : 1ms);
  for (const Kill& kill : kills_) wait = std::min<Duration>(wait, kill.at - now);
  process_.machine().wake(process_.index(), std::clamp<Duration>(wait, 1ms, 500ms));
}

/// Makes the detached actor that all drivers call. Every driver tries, and the first one names
/// it.
void Program::share_one() {
  Process::Spawn options;
  options.constructor = new_spec(Spec::Kind::constructor);
  options.name = kShared;
  options.detached = options.get_if_exists = true;
  options.max_restarts = -1;
  const ActorId id = process_.spawn(options).first;
  questions_.push_back({process_.find(options.name), options.name, id, true, false});
}

void Program::linger(Time now) {
  if (process_.machine().faulting()) {
    next_action_ = now + 200ms + Duration(process_.machine().random().below(600'000'000));
    for (KnownActor& actor : actors_)
      if (workload_.shares && actor.name == kShared && !actor.over) return call(actor, true);
    return process_.machine().random().chance(0.3) ? find_one() : call_one();
  }
  lingered_ = true;
  process_.machine().truth().mark(Mark::lingered);
  for (std::size_t i = 0; i < actors_.size(); ++i) call(actors_[i], true);
  for (int i = 0; i < 3; ++i) submit_one();
}

Spec Program::new_spec(Spec::Kind kind) {
  Random& random = process_.machine().random();
  Spec spec;
  spec.id = mixed(number_ << 20, ++next_spec_);
  spec.kind = kind;
  spec.run_ns = 50'000 + random.below(4'000'000);
  if (random.chance(workload_.slow_tasks)) {
    spec.run_ns = 50'000'000 + random.below(1'000'000'000);
    process_.machine().truth().mark(Mark::slow_task);
  }
  return spec;
}

std::vector<ObjectHandle> Program::some_objects(std::uint64_t most, bool) {
  Random& random = process_.machine().random();
  std::vector<ObjectHandle> some;
  for (auto n = objects_.empty() ? 0 : random.below(most + 1); n > 0; --n)
    some.push_back(objects_[random.below(objects_.size())]);
  return some;
}

void Program::one_action() {
  ++done_;
  Random& random = process_.machine().random();
  const std::uint64_t dice = random.below(100);
  if (dice < 45) return submit_one();
  if (dice < 50) {
    for (auto n = 8 + random.below(24); n > 0; --n) submit_one();
    return;
  }
  if (workload_.actors) {
    if (dice < 58) return spawn_one();
    if (dice < 80) {
      for (auto n = 1 + random.below(6); n > 0; --n) call_one();
      return;
    }
    if (dice < 80 + workload_.kills && dice < 90) return kill_one();
    if (dice >= 92 && dice < 96) return find_one();
  }
  if (dice < 90) {
    const std::uint64_t bytes = !workload_.large ? 0 : random.chance(0.3) ? 4096 : 0;
    const Spec spec = new_spec(Spec::Kind::leaf);
    objects_.push_back(process_.put(content_of(spec), bytes, some_objects(2, false)));
    return;
  }
  for (auto n = 1 + random.below(4); n > 0 && !objects_.empty(); --n)
    objects_.erase(objects_.begin() + static_cast<std::ptrdiff_t>(random.below(objects_.size())));
}

void Program::submit_one() {
  Random& random = process_.machine().random();
  using K = Spec::Kind;
  K kind = K::leaf;
  const std::uint64_t dice = random.below(100);
  if (dice < 12 && workload_.large)
    kind = K::large;
  else if (dice < 18 && workload_.bulk)
    kind = K::bulk;
  else if (dice < 32 && workload_.nested)
    kind = K::nested;
  else if (dice < 42 && workload_.nested)
    kind = K::forward;
  else if (dice < 54)
    kind = K::bundle;
  else if (dice < 66)
    kind = K::unwrap;
  else if (dice < 69 && workload_.throws)
    kind = K::throwing;
  else if (dice < 73 && workload_.throws)
    kind = K::flaky;
  Spec spec = new_spec(kind);
  spec.depth = static_cast<std::uint8_t>(1 + random.below(3));
  spec.fanout = static_cast<std::uint8_t>(1 + random.below(kind == K::bundle ? 4 : 3));
  if (kind == K::throwing) process_.machine().truth().mark(Mark::task_throws);
  if (kind == K::flaky) process_.machine().truth().mark(Mark::flaky_task);
  const LeaseKey key = some_key();
  const bool safe = kind != K::throwing;  // its error would hide those of other objects
  const std::uint64_t tries = random.below(10);
  const int retries = tries < 5 ? 3 : tries < 8 ? -1 : 0;
  ObjectHandle result =
      process_.submit(spec, some_objects(2, false), some_objects(2, false), key, retries);
  results_.push_back({result, spec, {}, random.chance(0.7), false, retries == 0});
  if (safe && random.chance(0.6)) objects_.push_back(std::move(result));
  if (objects_.size() > 24)
    objects_.erase(objects_.begin() + static_cast<std::ptrdiff_t>(random.below(objects_.size())));
}

LeaseKey Program::some_key() {
  Random& random = process_.machine().random();
  const std::uint64_t dice = random.below(100);
  if (dice < 60) return LeaseKey::of(random.below(3));
  if (dice < 80) {
    const std::vector<NodeId> nodes = process_.machine().nodes();
    return process_.key_of(nodes[random.below(nodes.size())], random.chance(0.5));
  }
  process_.machine().truth().mark(Mark::resource_hog);
  return 3;
}

void Program::call_one() {
  if (actors_.empty()) return;
  Random& random = process_.machine().random();
  call(actors_[random.below(actors_.size())], !random.chance(0.2));
}

void Program::call(KnownActor& actor, bool plain) {
  Spec spec = new_spec(Spec::Kind::method);
  spec.caller = mixed(number_, process_.index().value);
  spec.number = ++actor.number;
  std::vector<ObjectHandle> arguments;
  if (!plain) arguments = some_objects(1, false);
  plain = arguments.empty();
  if (actor.over) process_.machine().truth().after_kill(spec);
  results_.push_back({process_.call(actor.id, actor.lifetime, spec, std::move(arguments)), spec,
                      actor.id, false, plain});
}

void Program::spawn_one() {
  Random& random = process_.machine().random();
  Process::Spawn options;
  options.constructor = new_spec(Spec::Kind::constructor);
  options.max_restarts = random.chance(0.5) ? 3 : random.chance(0.5) ? -1 : 0;
  if (workload_.throws && random.chance(0.05)) {
    options.constructor.kind = Spec::Kind::throwing;
    process_.machine().truth().mark(Mark::constructor_throws);
  }
  if (workload_.names && random.chance(0.5)) {
    options.name = "name" + std::to_string(random.below(4));
    options.get_if_exists = random.chance(0.7);
    options.detached = random.chance(0.5);
    options.detached = options.detached && options.constructor.kind == Spec::Kind::constructor;
    if (options.detached) options.max_restarts = -1;
    process_.machine().truth().mark(Mark::name_clash);
  }
  if (random.chance(0.3) && !options.detached) {
    // An actor's constructor gets only arguments that are ready.
    for (const ObjectHandle& object : objects_)
      if (entry_of(object).ready && entry_of(object).kind != Kind::error) options.argument = object;
  }
  // There are so few seats in use that every such actor finds one while all nodes are up.
  if (workload_.seats && !options.detached && !options.get_if_exists && seats_ < 2 &&
      random.chance(0.5)) {
    options.takes = {{"seat", 2'500}};  // a quarter of the seats of a node
    ++seats_;
  }
  auto [id, lifetime] = process_.spawn(options);
  const bool may_fail = options.constructor.kind == Spec::Kind::throwing;
  if (options.name.empty()) {
    KnownActor& actor = actors_.emplace_back();
    actor.id = id;
    actor.lifetime = std::move(lifetime);
    actor.may_fail = may_fail;
    actor.keeps = !may_fail && options.max_restarts < 0 && !options.argument;
    return;
  }
  questions_.push_back({process_.find(options.name), options.name, id, options.detached, false});
}

/// Spawns an actor that needs a resource which tasks of other drivers may still have. No later
/// spawn reminds control of it, so control must place it by itself once there is room.
bool Program::spawn_last() {
  Random& random = process_.machine().random();
  if (!workload_.actors || process_.machine().faulting() || !random.chance(0.6)) return false;
  Process::Spawn options;
  options.constructor = new_spec(Spec::Kind::constructor);
  options.max_restarts = -1;
  options.takes = {{"gold", 10'000}};
  KnownActor& actor = actors_.emplace_back();
  std::tie(actor.id, actor.lifetime) = process_.spawn(options);
  actor.keeps = true;
  call(actor, true);
  return true;
}

void Program::on_found(std::uint64_t request, ActorId id, ObjectHandle lifetime) {
  const auto at = std::find_if(questions_.begin(), questions_.end(),
                               [&](const Question& q) { return q.request == request; });
  if (at == questions_.end()) return;
  const Question question = std::move(*at);
  questions_.erase(at);
  if (!lifetime) return;
  process_.machine().truth().mark(Mark::found_by_name);
  if (question.last) {
    process_.machine().truth().killed.insert(id);
    killed_.insert(id);
    return process_.kill(id, false);
  }
  for (const KnownActor& known : actors_)
    if (known.id == id) return;
  KnownActor& actor = actors_.emplace_back();
  actor.id = id;
  actor.lifetime = std::move(lifetime);
  actor.name = question.name;
  actor.may_fail = true;  // another driver's constructor may throw, and others may kill it
}

void Program::kill_one() {
  if (actors_.empty()) return;
  Random& random = process_.machine().random();
  KnownActor& actor = actors_[random.below(actors_.size())];
  const bool may_restart = random.chance(0.5);
  process_.machine().truth().mark(may_restart ? Mark::kill_may_restart : Mark::kill_by_handle);
  if (!may_restart) return kill_for_good(actor);
  actor.killed = true;
  process_.kill(actor.id, true);
  if (!random.chance(0.5)) return;
  const std::uint64_t most = random.chance(0.5) ? 60'000'000 : 1'000'000'000;
  kills_.push_back({actor.id, process_.machine().now() + Duration(random.below(most))});
}

void Program::kill_for_good(KnownActor& actor) {
  if (actor.over) process_.machine().truth().mark(Mark::killed_twice);
  actor.killed = actor.over = true;
  process_.machine().truth().killed.insert(actor.id);
  killed_.insert(actor.id);
  process_.kill(actor.id, false);
  pestered_ = actor.id;
  pester_every_ = 3ms;
  pester_ = process_.machine().random().below(6);
}

void Program::kill_now(ActorId id) {
  for (KnownActor& actor : actors_)
    if (actor.id == id && !actor.detached && !winding_up_) {
      kill_for_good(actor);
      pester_ = 40;  // the kill takes longer to reach the node than elsewhere
      pester_every_ = 20ms;
    }
}

void Program::find_one() {
  if (!workload_.names) return call_one();
  const std::string name = "name" + std::to_string(process_.machine().random().below(4));
  questions_.push_back({process_.find(name), name, {}, false, false});
}

// --- what became of it

bool Program::user_made(const ErrorInfo& error) const {
  for (const ErrorInfo* at = &error; at != nullptr; at = at->cause.get())
    if (at->type == "user" || at->type == "flaky") return true;
  return false;
}

/// Returns the error and its chain of causes as text.
static std::string chain_of(const ErrorInfo& error) {
  std::string text;
  for (const ErrorInfo* at = &error; at != nullptr; at = at->cause.get())
    text += (at == &error ? "" : ", from ") + std::string(Error(*at).what()) + " (code " +
            std::to_string(static_cast<int>(at->code)) + ")";
  return text;
}

void Program::judge(Result& result) {
  Truth& truth = process_.machine().truth();
  ++truth.settled;
  const Entry& entry = entry_of(result.handle);
  std::shared_ptr<const ErrorInfo> failed = entry.error;
  if (!failed && result.wants) failed = process_.open(result.handle).error;
  const bool is_method = static_cast<bool>(result.actor);
  if (is_method) {
    const std::optional<Error> error = failed ? std::optional<Error>(*failed) : std::nullopt;
    truth.method_ended(result.spec, error ? &*error : nullptr);
  }
  if (!failed) {
    ++truth.settled_ok;
    truth.check(result.spec.kind != Spec::Kind::throwing, "a task that throws has a result");
    if (!result.wants || !process_.machine().random().chance(0.5)) return;
    for (const ObjectHandle& ref : process_.open(result.handle).nested) {
      Result inner;
      inner.handle = ref;
      inner.wants = true;
      truth.mark(Mark::nested_got);
      nested_.push_back(std::move(inner));
    }
    return;
  }
  if (failed->code == Code::object_lost) truth.mark(Mark::lost_object);
  ++truth.excused;
  bool excused = truth.process_deaths + truth.breaks > 0 || user_made(*failed) ||
                 (result.once && truth.node_deaths > 0);
  for (const KnownActor& actor : actors_)
    if (is_method && actor.id == result.actor) {
      excused = excused || actor.killed || actor.may_fail;
      const bool may_be_lost = truth.node_deaths > 0 && truth.control_deaths > 0;
      if (actor.keeps && result.plain && truth.killed.count(actor.id) == 0 && !may_be_lost)
        truth.check(failed->code != Code::actor_died || failed->outcome != Outcome::not_executed,
                    "an actor that restarts without end is given up");
    }
  if (!excused)
    truth.fail("an error without any reason, of " +
               (is_method ? "a method of " + result.actor.str() : "a task") + ": " +
               chain_of(*failed));
  if (failed->code == Code::internal) truth.fail("an internal error: " + failed->message);
}

void Program::check_results() {
  std::erase_if(results_, [&](Result& result) {
    Entry& entry = entry_of(result.handle);
    if (!entry.ready) return false;
    if (result.wants && !process_.is_here(entry)) {
      if (!process_.fetch_failed(entry) || !entry_of(result.handle).wants_bytes) {
        process_.need(entry, true);
        return false;
      }
    }
    judge(result);
    return true;
  });
  for (Result& result : std::exchange(nested_, {})) {
    process_.need(entry_of(result.handle), true);
    results_.push_back(std::move(result));
  }
}

void Program::wind_up() {
  if (!results_.empty() || !questions_.empty()) return;
  for (const ActorId actor : killed_)
    if (process_.machine().actor_lives(actor)) return;
  if (!process_.machine().outlived().empty()) return;
  if (!std::exchange(spawned_last_, true) && spawn_last()) return;
  if (!winding_up_) {
    winding_up_ = true;
    objects_.clear();
    // Detached actors outlive their job, so every driver looks for them at its end and kills
    // them.
    for (int i = 0; workload_.names && workload_.actors && i < 4; ++i) {
      const std::string name = "name" + std::to_string(i);
      questions_.push_back({process_.find(name), name, {}, false, true});
    }
    return;
  }
  actors_.clear();
  process_.collect();
  if (process_.live_calls() > 0 || process_.live_entries() > 0) return;
  finished_ = true;
  process_.finish();
}

std::string Program::waits_for() const {
  std::string text;
  text += std::to_string(results_.size()) + " results (";
  for (std::size_t i = 0; i < results_.size() && i < 8; ++i) {
    const Result& one = results_[i];
    const Entry& entry = entry_of(one.handle);
    text += (i == 0 ? "" : ", ") + std::to_string(one.handle.id().low) + " of kind " +
            std::to_string(static_cast<int>(one.spec.kind)) +
            (one.actor ? " of actor " + std::to_string(one.actor.low) : "") +
            (entry.ready ? " ready" : "") + (entry.awaited ? " awaited" : "") +
            (entry.fetching ? " fetching" : "") +
            (entry.source ? " forwarded to " + entry_of(entry.source).id.str().substr(0, 6) + ":" +
                                std::to_string(entry_of(entry.source).id.low) +
                                (entry_of(entry.source).ready ? "!" : "?")
                          : "");
  }
  text += ")";
  if (!questions_.empty()) text += " " + std::to_string(questions_.size()) + " questions";
  for (const ActorId actor : killed_)
    if (process_.machine().actor_lives(actor))
      text += " the end of actor " + std::to_string(actor.low);
  text += " " + std::to_string(process_.live_calls()) + " calls " +
          std::to_string(process_.live_entries()) + " entries";
  return text;
}

}  // namespace troupe::sim::cluster
