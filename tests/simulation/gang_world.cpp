#include "tests/simulation/gang_world.hpp"

#include "troupe/train/checkpoint/folder/retention.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace troupe::train::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using State = GangCore::State;
using Kind = WorkerEvent::Kind;

/// Growths of a gang that fails within a minute of one come further and further apart.
constexpr Duration kTrial = minutes(1), kMostGrowAfter = minutes(10);
/// After the faults a run ends within its steps and this time.
constexpr Duration kPatience = minutes(3);

}  // namespace

SavedModel GangWorld::model(long step) {
  static troupe::detail::ObjectEntry entry{.handles{1'000'000'000}, .id{}};
  using Model = decltype(SavedModel::model);
  SavedModel saved;
  saved.model = detail::Access::make_ref<Model>(detail::ObjectHandle::adopt(&entry));
  entry.handles.store(1'000'000'000);
  saved.step = step;
  return saved;
}

GangWorld::GangWorld(std::uint64_t seed) : random_(seed) {
  plan_.layout.tp = chance(0.25) ? 2 : 1;
  const int tp = plan_.layout.tp;
  plan_.least = tp * static_cast<int>(1 + random_.below(3));
  plan_.most = plan_.least + (chance(0.6) ? tp * static_cast<int>(1 + random_.below(3)) : 0);
  plan_.layout.dp = plan_.least / tp;
  plan_.cpus = 1;
  plan_.spread = chance(0.4);
  plan_.max_restarts = chance(0.1) ? 3 : -1;
  plan_.grow_after = some(seconds(2), seconds(20));
  keep_ = static_cast<int>(1 + random_.below(3));
  plan_.seed = seed;
  int groups = 0;
  while (groups < plan_.most / tp || hosts_.size() < 2) {
    Host host;
    const auto number = hosts_.size() + 1;
    host.info.id = NodeId{number, 1};
    host.info.name = "node-" + std::to_string(number);
    host.info.address = "10.0.0." + std::to_string(number);
    host.info.cpus = static_cast<double>(tp + static_cast<int>(random_.below(3)));
    groups += static_cast<int>(host.info.cpus) / tp;
    hosts_.push_back(std::move(host));
  }
  plan_.driver = hosts_.front().info.id;
  rules_.steps = static_cast<long>(10 + random_.below(40));
  rules_.every = static_cast<long>(1 + random_.below(8));
  rules_.step = some(milliseconds(50), milliseconds(1500));
  rules_.faults = some(seconds(10), seconds(120));
  rules_.folder = plan_.folder = chance(0.6);
  rules_.bad_host = plan_.most > plan_.least && chance(0.2);
}

void GangWorld::say(const std::string& what) {
  if (broken_.empty())
    broken_ = "at " + std::to_string(now_.time_since_epoch() / milliseconds(1)) + " ms: " + what;
}

void GangWorld::run() {
  start_driver({});
  after(some(milliseconds(100), seconds(10)), [this] { strike(); });
  const Time until = now_ + rules_.faults + rules_.step * (4 * rules_.steps) + kPatience;
  at(now_ + rules_.faults, [this] { heal(); });
  while (!events_.empty() && broken_.empty() && !expected_.ended) {
    Event next = std::move(const_cast<Event&>(events_.top()));
    events_.pop();
    now_ = next.at;
    if (now_ > until) return say("the run does not end");
    next.what();
  }
  if (broken_.empty() && !expected_.ended) say("nothing happens any more");
}

// --- ranks

GangWorld::Played* GangWorld::present(int gang) {
  const auto at = gangs_.find(gang);
  return at != gangs_.end() && !at->second.over ? &at->second : nullptr;
}

void GangWorld::spawn(const act::Spawn& what) {
  Played& gang = gangs_[what.gang];
  gang.number = what.gang;
  const auto index = static_cast<std::size_t>(what.node.high - 1);
  Host& host = hosts_.at(index);
  if (host.told_draining) say("a rank goes to a node that drains");
  if (what.rank == 0) {
    ++seen_.gangs;
    const int tp = plan_.layout.tp;
    if (what.world < plan_.least || what.world > plan_.most || what.world % tp != 0)
      say("a gang has " + std::to_string(what.world) + " ranks");
    for (const auto& [number, other] : gangs_)
      if (number != what.gang && !other.over) say("two gangs at once");
    if (what.start.step != (core_->start() ? core_->start().step : 0)) say("another start");
  } else if (what.rank % plan_.layout.tp != 0 && gang.ranks.back().host != index) {
    say("a group that divides tensors spans nodes");
  }
  if (static_cast<int>(gang.ranks.size()) != what.rank) say("ranks come in another order");
  gang.step = what.start.step;
  gang.ranks.push_back({.host = index, .life = host.life});
  if (!host.up) {
    const int number = what.gang, rank = what.rank;
    const Code code = chance(0.3) ? Code::infeasible : Code::actor_died;
    then(some(milliseconds(10), seconds(1)), [this, number, rank, code] {
      Played* to = present(number);
      if (to == nullptr) return;
      (code == Code::infeasible ? to->told_lost : to->told_hurt) = true;
      core_->died(now_, number, rank, error(code));
      drive();
    });
    gang.ranks.back().dead = gang.hurt = true;
    return;
  }
  host.waiting.emplace_back(what.gang, what.rank);
  serve(index);
}

/// Delivers an event to the driver after all earlier ones of the rank. The core gets it also when
/// the gang has ended.
void GangWorld::tell(Played& gang, int rank, WorkerEvent event) {
  Rank& from = gang.ranks[static_cast<std::size_t>(rank)];
  from.last = std::max(from.last, now_ + some({}, chance(0.02) ? seconds(1) : milliseconds(2)));
  const int number = gang.number, life = life_;
  at(from.last, [this, number, rank, life, event = std::move(event)] {
    if (!core_ || life != life_) return;
    Played& to = gangs_.at(number);
    Rank& mine = to.ranks[static_cast<std::size_t>(rank)];
    seen_.late += to.over ? 1 : 0;
    if (!to.over) {
      mine.told_ready = mine.told_ready || event.kind == Kind::ready;
      if (event.kind == Kind::folder) to.wrote[event.folder.step].insert(rank);
      if (event.kind == Kind::ended) {
        mine.told_end = event.error.empty();
        to.told_hurt = to.told_hurt || !event.error.empty();
      }
    }
    core_->heard(now_, number, rank, event);
    drive();
  });
}

void GangWorld::begin(const act::Begin& what) {
  Played& gang = gangs_.at(what.gang);
  for (const Rank& rank : gang.ranks)
    if (!rank.told_ready) say("a gang begins without all its ranks");
  gang.begun = true;
  gang.begun_at = now_;
  const int size = static_cast<int>(gang.ranks.size());
  if (expected_.before != 0 && size > expected_.before) {
    expected_.grown_at = now_;
    ++seen_.growths;
  }
  expected_.before = size;
  if (gang.hurt) {  // a rank died after it was ready, and the core does not know yet
    for (int rank = 0; rank < size; ++rank)
      if (gang.ranks[static_cast<std::size_t>(rank)].dead) hurt(gang, rank, milliseconds(1));
    return;
  }
  const int number = what.gang;
  if (rules_.bad_host && size == plan_.most)
    then(some(seconds(1), seconds(30)), [this, number] {
      if (Played* mine = present(number)) hurt(*mine, 0, milliseconds(5));
    });
  then(rules_.step, [this, number] { play_step(number); });
}

void GangWorld::play_step(int number) {
  Played* gang = present(number);
  if (gang == nullptr || gang->hurt) return;
  if (gang->step >= rules_.steps) return end_loop(number);
  ++gang->step;
  for (int rank = 0; rank < static_cast<int>(gang->ranks.size()); ++rank) {
    WorkerEvent report;
    report.kind = Kind::reported;
    report.at = {gang->step, static_cast<std::uint64_t>(gang->step)};
    report.metrics.step = gang->step;
    report.metrics.loss = static_cast<double>((gang->step * 7919) % 101);
    tell(*gang, rank, std::move(report));
  }
  if (gang->step % rules_.every == 0 || std::exchange(gang->wanted, false)) save(*gang);
  then(rules_.step, [this, number] { play_step(number); });
}

void GangWorld::save(Played& gang) {
  const long step = gang.step;
  if (!rules_.folder) {
    const Rank& first = gang.ranks.front();
    objects_[step] = {first.host, first.life};
    WorkerEvent saved;
    saved.kind = Kind::saved;
    saved.at = {step, static_cast<std::uint64_t>(step)};
    saved.saved = model(step);
    return tell(gang, 0, std::move(saved));
  }
  const bool slow = chance(0.2);
  for (int rank = 0; rank < static_cast<int>(gang.ranks.size()); ++rank) {
    WorkerEvent written;
    written.kind = Kind::folder;
    written.at = {step, static_cast<std::uint64_t>(step)};
    written.folder.step = step;
    if (chance(0.01)) written.folder.error = "the disk is full";
    gang.ranks[static_cast<std::size_t>(rank)].last +=
        some(milliseconds(1), slow ? seconds(3) : milliseconds(100));
    tell(gang, rank, std::move(written));
  }
}

/// The loop has returned; each rank ends once its writes have ended.
void GangWorld::end_loop(int number) {
  Played& gang = gangs_.at(number);
  for (int rank = 0; rank < static_cast<int>(gang.ranks.size()); ++rank) {
    WorkerEvent end;
    end.kind = Kind::ended;
    end.at = {gang.step, static_cast<std::uint64_t>(gang.step)};
    gang.ranks[static_cast<std::size_t>(rank)].ended = true;
    tell(gang, rank, std::move(end));
  }
}

/// A rank dies, and the others fail in their next sum.
void GangWorld::hurt(Played& gang, int rank, Duration told) {
  Rank& victim = gang.ranks[static_cast<std::size_t>(rank)];
  if (gang.over || (victim.dead && !gang.begun) || victim.ended) return;
  const bool first = !gang.hurt || gang.begun;
  gang.hurt = victim.dead = true;
  const int number = gang.number, life = life_;
  const Time due = victim.last = std::max(victim.last, now_ + told);
  at(due, [this, number, rank, life] {
    if (!core_ || life != life_) return;
    Played& to = gangs_.at(number);
    if (!to.over) to.told_hurt = true;
    core_->died(now_, number, rank, error(Code::actor_died));
    drive();
  });
  if (!gang.begun || !first) return;
  for (int other = 0; other < static_cast<int>(gang.ranks.size()); ++other) {
    Rank& each = gang.ranks[static_cast<std::size_t>(other)];
    if (each.dead || each.ended || chance(0.05)) continue;  // some never say anything
    each.ended = true;
    WorkerEvent end;
    end.kind = Kind::ended;
    end.at = {gang.step, static_cast<std::uint64_t>(gang.step)};
    end.error = internal::told(error(Code::worker_died));
    end.missed_others = true;
    tell(gang, other, std::move(end));
  }
}

void GangWorld::take_down(Played& gang) {
  gang.over = true;
  for (std::size_t i = 0; i < gang.ranks.size(); ++i) {
    const Rank& rank = gang.ranks[i];
    Host& host = hosts_[rank.host];
    if (host.life != rank.life) continue;
    std::erase(host.waiting, std::pair(gang.number, static_cast<int>(i)));
    if (!rank.placed) continue;
    --host.held;
    host.lag.push_back({now_ + some({}, seconds(1)), life_, gang.number});
    std::erase_if(host.lag, [this](const Host::Lag& l) { return l.until <= now_; });
  }
  for (std::size_t i = 0; i < hosts_.size(); ++i) serve(i);
}

// --- the driver

void GangWorld::start_driver(const SavedModel& start) {
  ++life_;
  expected_ = {};
  expected_.grow_after = plan_.grow_after;
  expected_.first = start ? start.step : 0;
  for (Host& host : hosts_) host.told_draining = false;
  GangPlan plan = plan_;
  plan.seed = random_();
  core_ = std::make_unique<GangCore>(std::move(plan), start);
  core_->begin(now_);
  drive();
}

void GangWorld::kill_driver() {
  if (!core_) return;
  ++seen_.drivers;
  for (auto& [number, gang] : gangs_)
    if (!gang.over) take_down(gang);
  core_.reset();
  ++life_;
  gangs_.clear();
  for (Host& host : hosts_) host.waiting.clear();
  after(some(milliseconds(50), seconds(2)),
        [this] { start_driver(folders_.empty() ? SavedModel{} : model(*folders_.rbegin())); });
}

/// Does what the core says, and wakes it when it asks for that.
void GangWorld::drive() {
  for (auto acts = core_->take(); !acts.empty() && broken_.empty(); acts = core_->take())
    for (const GangAct& each : acts) std::visit([this](const auto& what) { perform(what); }, each);
  if (expected_.ended || !broken_.empty()) return;
  const GangCore::Results& results = core_->results();
  if (results.restarts != expected_.restarts || results.moves != expected_.moves)
    return say(std::to_string(results.restarts) + " restarts and " + std::to_string(results.moves) +
               " moves instead of " + std::to_string(expected_.restarts) + " and " +
               std::to_string(expected_.moves));
  const Time due = core_->next();
  if (due == Time::max()) return;
  const int life = life_;
  at(std::max(due, now_), [this, life, due] {
    if (!core_ || life != life_ || core_->next() != due) return;
    core_->time(now_);
    if (core_->next() <= now_) return say("time does not go on");
    drive();
  });
}

void GangWorld::perform(const act::AskNodes&) {
  for (Host& host : hosts_) host.told_draining = host.info.draining;
  const bool lags = chance(0.1);  // a list that does not know of losses yet
  const bool places = core_->state() == State::placing && core_->gang() == 0;
  // The core must see the CPUs that its last gang has just left.
  bool knows = places && expected_.last_killed != 0;
  for (const Host& host : hosts_)
    for (const Host::Lag& lag : host.lag)
      knows =
          knows && (lag.until <= now_ || (lag.life == life_ && lag.gang == expected_.last_killed));
  int size = 0;
  if (knows) {
    const std::vector<NodeInfo> truth = infos(false);
    for (int n = plan_.most; n >= plan_.least && size == 0; n -= plan_.layout.tp)
      if (gang_place(truth, {n, plan_.layout.tp, 1, 0, plan_.spread}, plan_.driver).fit ==
          GangPlaces::Fit::placed)
        size = n;
  }
  std::vector<NodeInfo> told = infos(true);
  if (chance(0.1))  // a report that does not know of other work yet
    for (NodeInfo& info : told) info.cpus_free = info.cpus;
  if (lags)
    for (const Host& host : hosts_)
      if (!host.up && now_ - host.lost < milliseconds(500)) {
        told.push_back(host.info);
        told.back().cpus_free = told.back().cpus;
      }
  core_->nodes(now_, std::move(told));
  if (size == 0) return;
  ++seen_.hidden;
  const std::vector<GangAct> acts = core_->take();
  const auto spawns = std::count_if(acts.begin(), acts.end(), [](const GangAct& act) {
    return std::holds_alternative<act::Spawn>(act);
  });
  if (spawns < size)
    say(std::to_string(size) + " ranks have room, and " + std::to_string(spawns) + " begin");
  for (const GangAct& each : acts) std::visit([this](const auto& what) { perform(what); }, each);
}

bool GangWorld::exists(const SavedModel& saved) const {
  if (!saved) return false;
  if (rules_.folder) return folders_.count(saved.step) != 0;
  const auto at = objects_.find(saved.step);
  return at != objects_.end() && hosts_[at->second.first].life == at->second.second;
}

void GangWorld::perform(const act::ChooseStart& what) {
  if (rules_.folder)
    return core_->chosen(now_, folders_.empty() ? SavedModel{} : model(*folders_.rbegin()));
  SavedModel found;
  for (const SavedModel& each : what.candidates)
    if (!found && exists(each)) found = each;
  core_->chosen(now_, found);
}

/// A rank that passed a place without a report says so.
void GangWorld::perform(const act::Watch& what) {
  Played* gang = present(core_->gang());
  if (gang == nullptr || gang->hurt) return;
  WorkerEvent passed;
  passed.kind = Kind::passed;
  passed.at = {gang->step, static_cast<std::uint64_t>(gang->step)};
  tell(*gang, what.rank, std::move(passed));
}

void GangWorld::perform(const act::WantSave&) {
  Played* gang = present(core_->gang());
  if (gang == nullptr) return say("a checkpoint of no gang is wanted");
  gang->wanted = true;
  const bool leaves = std::any_of(gang->ranks.begin(), gang->ranks.end(),
                                  [this](const Rank& r) { return hosts_[r.host].told_draining; });
  seen_.left += leaves ? 1 : 0;
  if (leaves) return;
  if (static_cast<int>(gang->ranks.size()) == plan_.most) say("a gang that is full grows");
  if (now_ - gang->begun_at < expected_.grow_after) say("a gang grows too soon");
}

void GangWorld::perform(const act::Kill&) {
  const auto found = std::find_if(gangs_.begin(), gangs_.end(),
                                  [](const auto& each) { return !each.second.over; });
  if (found == gangs_.end()) return say("no gang is to be killed");
  Played& gang = found->second;
  const bool done =
      std::all_of(gang.ranks.begin(), gang.ranks.end(), [](const Rank& r) { return r.told_end; });
  const bool last = plan_.max_restarts >= 0 && expected_.restarts == plan_.max_restarts;
  if (gang.told_hurt && !gang.told_lost) {
    if (!last) ++expected_.restarts;
    if (expected_.grown_at != Time::max() && now_ - expected_.grown_at < kTrial)
      expected_.grow_after = std::min<Duration>(2 * expected_.grow_after, kMostGrowAfter);
    expected_.grown_at = Time::max();
    ++seen_.restarts;
  } else if (gang.begun && !done) {
    ++expected_.moves;
    ++seen_.moves;
  } else if (!gang.begun) {
    ++seen_.gathers;
  }
  expected_.last_killed = gang.begun ? gang.number : 0;
  take_down(gang);
}

void GangWorld::perform(const act::Reported& what) {
  values_[what.metrics.step] = what.value.value_or(0);
}

/// The driver completes the checkpoint and removes what is not kept.
void GangWorld::perform(const act::EndSave& what) {
  Played* gang = present(what.gang);
  const long step = what.save.step;
  if (gang == nullptr || what.gang != core_->gang())
    return say("a checkpoint of an older gang is committed");
  if (!what.save.error.empty()) {
    ++seen_.failed_saves;
    if (++expected_.failed_saves == 3) expected_.ended = true;  // the driver ends the run
    return;
  }
  if (gang->wrote[step].size() != gang->ranks.size())
    return say("a checkpoint is committed before every rank wrote");
  ++seen_.commits;
  expected_.failed_saves = 0;
  folders_.erase(folders_.upper_bound(step), folders_.end());
  folders_.insert(step);
  const std::vector<long> steps(folders_.begin(), folders_.end());
  const auto better = [this](long a, long b) { return values_[a] < values_[b]; };
  const long best = *std::min_element(steps.begin(), steps.end(), better);
  for (const long gone : unneeded(steps, values_, keep_, false)) {
    ++seen_.removed;
    if (gone == best) say("the best checkpoint is deleted");
    folders_.erase(gone);
  }
  core_->committed(now_, what.gang, model(step));
}

void GangWorld::perform(const act::Began& what) {
  const Played* gang = present(core_->gang());
  if (gang == nullptr) return say("an ended gang begins");
  if (what.gang.ranks.size() != gang->ranks.size())
    say("a gang of " + std::to_string(gang->ranks.size()) + " is told to have " +
        std::to_string(what.gang.ranks.size()) + " ranks");
  if (what.gang.step != gang->step)
    say("a gang from step " + std::to_string(gang->step) + " is told to begin at " +
        std::to_string(what.gang.step));
}

void GangWorld::perform(const act::Finish&) {
  expected_.ended = true;
  const GangCore::Results& results = core_->results();
  long step = expected_.first;
  for (const Metrics& metrics : results.history)
    if (metrics.step != ++step)
      return say("step " + std::to_string(metrics.step) + " is reported in place of " +
                 std::to_string(step));
  if (step != rules_.steps) say("the run ends at step " + std::to_string(step));
  for (const auto& [number, gang] : gangs_)
    if (!gang.over) say("a gang outlives its run");
}

void GangWorld::perform(const act::Fail& what) {
  expected_.ended = true;
  const bool last = plan_.max_restarts >= 0 && expected_.restarts == plan_.max_restarts;
  if (!last) say("the run fails: " + what.error.message());
}

}  // namespace troupe::train::internal
