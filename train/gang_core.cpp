#include "troupe/train/internal/gang_core.hpp"

#include "troupe/runtime/base/buggify.hpp"

#include <algorithm>
#include <utility>

namespace troupe::train::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

/// How often the nodes are asked for. While a gang waits for room the intervals begin shorter.
constexpr Duration kLook = seconds(1), kPoll = milliseconds(50);
/// How long the resources of a gang that ended may still be reported as taken.
constexpr Duration kStillHeld = seconds(3);
/// How long a report waits for the other ranks before they are asked where they are.
constexpr Duration kReportWait = milliseconds(20);
/// How long the other ranks may take to end after a failure.
constexpr Duration kGrace = seconds(2);
/// How long the list of nodes may lag behind the loss of a node, and how often it is asked for.
constexpr Duration kDoubt = seconds(2), kDoubtLook = milliseconds(100);
/// How long a move waits for the report of the step that was saved.
constexpr Duration kLastReport = seconds(1);
/// A failure this soon after a growth counts against growing, which then waits longer.
constexpr Duration kGrowthTrial = minutes(1), kMostGrowAfter = minutes(10);

std::string without_room(const std::string& message) {
  constexpr std::string_view kRoom = "train: ";
  return message.starts_with(kRoom) ? message.substr(kRoom.size()) : message;
}

}  // namespace

GangCore::GangCore(GangPlan plan, SavedModel start)
    : plan_(std::move(plan)), kept_(plan_.maximize), random_(plan_.seed) {
  starts_.now = starts_.first = std::move(start);
  growth_.after = plan_.grow_after;
}

// --- placing

void GangCore::begin(Time now) {
  placing_.ask = now;
  placing_.poll = kPoll;
  time(now);
}

GangNeed GangCore::need(int workers) const {
  return {.workers = workers,
          .tp = plan_.layout.tp,
          .cpus = plan_.cpus,
          .gpus = plan_.gpus,
          .spread = plan_.spread};
}

/// Returns the largest size that fits now and its places; without any, those of the least size.
std::pair<int, GangPlaces> GangCore::best_places(const GangHeld& held) const {
  const int step = plan_.layout.tp * plan_.layout.pp;
  const int least = TROUPE_MUTANT("gang.below_least") ? step : plan_.least;
  for (int size = plan_.most;; size -= step) {
    GangPlaces places = gang_place(nodes_, need(size), plan_.driver, held);
    if (places.fit == GangPlaces::Fit::placed || size <= least) return {size, std::move(places)};
  }
}

GangHeld GangCore::ranks_by_node() const {
  GangHeld held;
  for (const Rank& rank : gang_->ranks)
    if (rank.ready) ++held[rank.node];
  return held;
}

const NodeInfo* GangCore::node(NodeId id) const {
  const auto at = std::find_if(nodes_.begin(), nodes_.end(),
                               [id](const NodeInfo& node) { return node.id == id; });
  return at != nodes_.end() ? &*at : nullptr;
}

void GangCore::nodes(Time now, std::vector<NodeInfo> nodes) {
  nodes_ = std::move(nodes);
  if (state_ == State::ended) return;
  if (!gang_) return std::exchange(placing_.asked, false) ? place(now) : static_cast<void>(0);
  if (gang_->doubt_until != Time::max()) return judge_doubt(now);
  if (state_ == State::gathering && plan_.moves && drains() && !gang_->verdict.troubled()) {
    take_down(now);
    placing_.ask = now;
    return time(now);
  }
  look_for_move(now);
}

/// A rank fits nowhere. When its node has gone, the next gang gets another one. The list of nodes
/// may lag behind what the rank was told, so it counts after a while.
void GangCore::judge_doubt(Time now) {
  const bool lost = std::any_of(gang_->ranks.begin(), gang_->ranks.end(), [this](const Rank& r) {
    const NodeInfo* at = node(r.node);
    return at == nullptr || !at->alive || at->draining;
  });
  if (!lost && now < gang_->doubt_until) {
    look_ = now + kDoubtLook;
    return;
  }
  if (!lost || state_ != State::gathering) return end_gang(now, lost ? End::restart : End::error);
  take_down(now);  // no loop has begun, so this is no restart
  placing_.ask = now;
  time(now);
}

void GangCore::place(Time now) {
  const bool held = now < placing_.held_until && !TROUPE_MUTANT("gang.held_is_taken");
  const auto [size, places] = best_places(held ? placing_.held : GangHeld{});
  placing_.never.clear();
  if (places.fit == GangPlaces::Fit::placed) return spawn(now, size, places);
  if (places.fit == GangPlaces::Fit::never) {
    placing_.never = "train: a gang of " + std::to_string(size) + " " + places.why +
                     ": use fewer workers, reserve less for each of them, or add a larger node";
    if (!std::exchange(placing_.probed, true))
      acts_.emplace_back(act::Probe{size * plan_.cpus, size * plan_.gpus});
  }
  placing_.ask = now + placing_.poll;
  placing_.poll = std::min<Duration>(2 * placing_.poll, kLook);
}

void GangCore::newcomer(Time now) {
  placing_.probed = false;
  if (state_ == State::placing && placing_.ask != Time::max()) placing_.ask = now;
}

void GangCore::no_newcomer(Time) {
  placing_.probed = false;
  if (state_ != State::placing || placing_.never.empty()) return;
  fail(Infeasible(Code::infeasible, placing_.never));
}

void GangCore::spawn(Time now, int size, const GangPlaces& places) {
  Layout layout = plan_.layout;
  if (plan_.least != plan_.most) layout.dp = size / (layout.tp * layout.pp);
  gang_.emplace(Present{.number = ++gangs_,
                        .layout = layout,
                        .ranks = std::vector<Rank>(places.nodes.size()),
                        .has_doors = places.nodes.front() != places.nodes.back(),
                        .verdict = GangVerdict(size),
                        .reports = Reports(size, plan_.metric, plan_.reduce),
                        .open = {},
                        .saves = Saves(size)});
  state_ = State::gathering;
  look_ = now + kLook;
  placing_.poll = kPoll;
  for (int rank = 0; rank < size; ++rank) {
    const NodeId id = gang_->ranks[static_cast<std::size_t>(rank)].node =
        places.nodes[static_cast<std::size_t>(rank)];
    const NodeInfo* at = node(id);
    acts_.emplace_back(
        act::Spawn{.gang = gang_->number,
                   .rank = rank,
                   .world = size,
                   .incarnation = results_.restarts + results_.moves,
                   .node = id,
                   .listen = gang_->has_doors && at != nullptr ? at->address : std::string(),
                   .layout = layout,
                   .start = starts_.now});
  }
}

void GangCore::begin_gang(Time now) {
  state_ = State::running;
  gang_->limit = Time::max();
  results_.ranks = size();
  if (growth_.before != 0 && size() > growth_.before) growth_.grown_at = now;
  growth_.before = size();
  growth_.since = Time::max();
  act::Begin order{gang_->number, {}, gang_->has_doors};
  act::Began began{{.ranks = {}, .step = starts_.now ? starts_.now.step : 0}};
  for (int rank = 0; rank < size(); ++rank) {
    const Rank& each = gang_->ranks[static_cast<std::size_t>(rank)];
    const NodeInfo* at = node(each.node);
    if (gang_->has_doors) order.members.push_back({each.node.str(), each.door});
    began.gang.ranks.push_back({rank, at != nullptr ? at->name : each.node.str(), each.pid});
  }
  acts_.emplace_back(std::move(order));
  acts_.emplace_back(std::move(began));
}

// --- moving

bool GangCore::drains() const {
  return std::any_of(gang_->ranks.begin(), gang_->ranks.end(), [this](const Rank& rank) {
    const NodeInfo* at = node(rank.node);
    return at != nullptr && at->draining;
  });
}

/// Returns whether the gang has to leave a node and can, or could be larger.
bool GangCore::wants_move() const {
  const bool leaves = drains();
  if (!leaves && size() == plan_.most) return false;
  const auto [size_now, places] = best_places(ranks_by_node());
  return places.fit == GangPlaces::Fit::placed && (leaves || size_now > size());
}

void GangCore::look_for_move(Time now) {
  if (state_ != State::running || !plan_.moves) return;
  if (!wants_move()) {
    growth_.since = Time::max();
    return;
  }
  if (!drains()) {
    if (growth_.since == Time::max()) growth_.since = now;
    if (const Time due = growth_.since + growth_.after; now < due) {
      look_ = std::min(look_, due);
      return;
    }
  }
  state_ = State::moving;
  gang_->saved = -1;
  gang_->move_by = Time::max();
  acts_.emplace_back(act::WantSave{});
}

void GangCore::move(Time now) {
  if (!wants_move()) {  // what was free is taken again, or the node stays
    state_ = State::running;
    growth_.since = Time::max();
    gang_->move_by = Time::max();
    return;
  }
  ++(TROUPE_MUTANT("gang.move_is_restart") ? results_.restarts : results_.moves);
  settle_reports();
  take_down(now);
  choose_start("");
}

// --- what ranks say

/// Returns whether this is a rank of the present gang.
bool GangCore::is_present(int gang, int rank) const {
  if (!gang_ || rank >= size()) return false;
  return gang == gang_->number || TROUPE_MUTANT("gang.older_event");
}

void GangCore::heard(Time now, int gang, int rank, const WorkerEvent& event) {
  if (!is_present(gang, rank)) return;
  happened(now, rank, event);
  gang_->reports.passed(rank, event.at);
  if (gang_->verdict.over(rank)) gang_->reports.over(rank);
  if (state_ == State::moving && gang_->saved >= 0 && rank == 0 && event.at.step > gang_->saved)
    gang_->move_by = now;
  settle(now);
}

void GangCore::happened(Time now, int rank, const WorkerEvent& event) {
  using Kind = WorkerEvent::Kind;
  Rank& from = gang_->ranks[static_cast<std::size_t>(rank)];
  switch (event.kind) {
    case Kind::ready: {
      from.ready = true;
      from.door = event.door;
      from.pid = event.pid;
      if (state_ != State::gathering || gang_->verdict.troubled()) return;
      if (std::all_of(gang_->ranks.begin(), gang_->ranks.end(),
                      [](const Rank& r) { return r.ready; }))
        return begin_gang(now);
      // Ranks that reserve nothing cannot wait for another gang's resources.
      if (gang_->limit == Time::max() && (plan_.cpus > 0 || plan_.gpus > 0))
        gang_->limit = now + placing_.gather_within;
      return;
    }
    case Kind::reported: return gang_->reports.reported(rank, event.at, event.metrics);
    case Kind::passed: from.asked = false; return;
    case Kind::saved: return saved(now, event.saved);
    case Kind::restored:
      if (results_.restarts + results_.moves == 0) acts_.emplace_back(act::Restored{event.hash});
      return;
    case Kind::folder: return heard_of_folder(rank, event.folder);
    case Kind::ended: return ended(rank, event);
  }
}

void GangCore::ended(int rank, const WorkerEvent& event) {
  const std::optional<Error> error = error_of(event.error);
  if (!error) return gang_->verdict.returned(rank, event.at.step);
  note(rank, event.at.step, *error);
  gang_->verdict.failed(rank, {event.at.step, *error, event.missed_others, event.missed_rank});
}

void GangCore::died(Time now, int gang, int rank, const Error& error) {
  if (!is_present(gang, rank) || gang_->verdict.over(rank)) return;
  note(rank, results_.last.step, error);
  gang_->verdict.died(rank, results_.last.step, error);
  gang_->reports.over(rank);
  settle(now);
}

void GangCore::note(int rank, long step, const Error& error) {
  note("worker " + std::to_string(rank) + " at step " + std::to_string(step) + ": " +
       error.message());
}

// --- checkpoints

void GangCore::saved(Time now, const SavedModel& model) {
  kept_.saved(model, gang_->reports.awaits(kept_.latest.step));
  if (state_ != State::moving || gang_->saved >= 0) return;
  gang_->saved = model.step;
  gang_->move_by = results_.last.step >= model.step ? now : now + kLastReport;
}

void GangCore::heard_of_folder(int rank, const FolderEvent& event) {
  judge_reports();  // those of a checkpoint's step are in the folder before it is complete
  if (event.kind == FolderEvent::Kind::started)  // newer checkpoints may be damaged
    std::erase_if(results_.history, [&](const Metrics& m) { return m.step > event.step; });
  if (event.kind == FolderEvent::Kind::started || event.kind == FolderEvent::Kind::unseen) {
    acts_.emplace_back(act::Started{event});
    return;
  }
  if (std::optional<Saves::Ended> save = gang_->saves.heard(rank, event))
    acts_.emplace_back(act::EndSave{gang_->number, *std::move(save)});
}

void GangCore::committed(Time now, int gang, const SavedModel& model) {
  if (!gang_ || gang != gang_->number) return;
  saved(now, model);
  settle(now);
}

/// Offers the latest checkpoint and those before it as the next start. A checkpoint may be lost
/// with its node. `reason`: of a restart; empty: the gang moves.
void GangCore::choose_start(std::string reason) {
  state_ = State::placing;
  placing_.ask = Time::max();
  starts_.reason = std::move(reason);
  acts_.emplace_back(act::ChooseStart{{kept_.latest, kept_.best, starts_.first}});
}

void GangCore::chosen(Time now, const SavedModel& found) {
  if (state_ != State::placing) return;
  starts_.now = found;
  if (!plan_.folder) {
    for (SavedModel* each : {&kept_.latest, &kept_.best, &starts_.first}) {
      if (found && each->step == found.step) {
        *each = found;  // or a copy of it
        break;
      }
      if (!*each) continue;
      note("the checkpoint of step " + std::to_string(each->step) + " is lost");
      if (each == &kept_.best) kept_.best_value.reset();
      *each = {};
    }
    if (found && !kept_.latest) kept_.latest = kept_.best;
  }
  const long step = starts_.now ? starts_.now.step : 0;
  if (!TROUPE_MUTANT("gang.reported_twice"))
    std::erase_if(results_.history, [step](const Metrics& m) { return m.step > step; });
  kept_.start_again();
  placing_.ask = now;
  placing_.poll = kPoll;
  if (!starts_.reason.empty()) {
    if (plan_.verdicts) acts_.emplace_back(act::Restarted{starts_.reason, step});
    // Exponential back-off while restarts bring no new checkpoint.
    if (step > starts_.from) starts_.unlucky = 0;
    starts_.from = step;
    if (starts_.unlucky > 0)
      placing_.ask +=
          std::min<Duration>(milliseconds(50) * (1 << std::min(starts_.unlucky, 8)), seconds(10));
    ++starts_.unlucky;
  }
  time(now);
}

// --- reports

void GangCore::judge_reports() {
  while (const auto report = gang_->reports.next()) {
    reported(*report);
    const Metrics& metrics = report->metrics;
    if (!plan_.verdicts) continue;
    if (metrics.step <= starts_.judged) {  // a step that a restart repeats was judged before
      tell_all({.kind = WorkerOrder::Kind::verdict, .go_on = true});
      continue;
    }
    starts_.judged = metrics.step;
    acts_.emplace_back(act::Report{gang_->number, metrics, saved_in(metrics.step), true});
  }
}

void GangCore::judged(int gang, bool go_on) {
  if (!gang_ || gang != gang_->number) return;
  tell_all({.kind = WorkerOrder::Kind::verdict, .go_on = go_on});
}

/// Hands on the reports of a gang that has ended which the next gang does not report again.
void GangCore::settle_reports() {
  for (int rank = 0; rank < size(); ++rank) gang_->reports.over(rank);
  while (const auto report = gang_->reports.next()) {
    reported(*report);
    const Metrics& metrics = report->metrics;
    if (!plan_.verdicts || metrics.step <= starts_.judged || metrics.step > kept_.latest.step)
      continue;
    starts_.judged = metrics.step;
    acts_.emplace_back(act::Report{gang_->number, metrics, saved_in(metrics.step), false});
  }
}

void GangCore::reported(const Reports::Complete& report) {
  results_.last = report.metrics;
  results_.history.push_back(report.metrics);
  kept_.valued(report.metrics.step, report.value);
  if (plan_.folder) acts_.emplace_back(act::Reported{report.metrics, report.value});
}

/// Returns the latest checkpoint if it is of this very step.
SavedModel GangCore::saved_in(long step) const {
  return kept_.latest && kept_.latest.step == step ? kept_.latest : SavedModel{};
}

// --- ends

/// Draws the conclusions from what has come in.
void GangCore::settle(Time now) {
  if (!gang_ || state_ == State::ended) return;
  judge_reports();
  look_after(now);
  watch_open(now);
  const End end = gang_->verdict.end();
  if (end != End::open) {
    if (end == End::error && gang_->verdict.error().code() == Code::infeasible) {
      if (gang_->doubt_until != Time::max()) return;
      gang_->doubt_until = now + kDoubt;
      acts_.emplace_back(act::AskNodes{});
      return;
    }
    return end_gang(now, end);
  }
  if (state_ != State::moving || gang_->saved < 0 || gang_->verdict.troubled()) return;
  if (now >= gang_->move_by || results_.last.step >= gang_->saved) move(now);
}

/// Once a rank has failed, ends all waits for verdicts at once, and the wait for the other ranks
/// after a grace period.
void GangCore::look_after(Time now) {
  GangVerdict& verdict = gang_->verdict;
  // Reports cannot complete without rank 0 either, so its end also ends the waits for verdicts.
  if (!verdict.troubled() && !verdict.over(0)) return;
  if (!std::exchange(gang_->told_gone, true))
    tell_all({.kind = WorkerOrder::Kind::gone, .missed_rank = verdict.over(0) ? 0 : -1});
  if (!verdict.troubled()) return;
  gang_->grace = std::min(gang_->grace, now + kGrace);
  if (now >= gang_->grace) verdict.stop_waiting();
}

/// Asks the ranks that the oldest report has waited for long enough, and which may have passed that
/// place without a report.
void GangCore::watch_open(Time now) {
  const std::optional<Position> open = gang_->reports.open();
  if (open != gang_->open) gang_->ask_at = open ? now + kReportWait : Time::max();
  gang_->open = open;
  if (now < gang_->ask_at) return;
  gang_->ask_at = now + kReportWait;
  for (int rank = 0; rank < size(); ++rank) {
    Rank& each = gang_->ranks[static_cast<std::size_t>(rank)];
    if (each.asked || !gang_->reports.waits_for(rank)) continue;
    each.asked = true;
    acts_.emplace_back(act::Watch{rank, *open});
  }
}

void GangCore::end_gang(Time now, End end) {
  settle_reports();
  if (end == End::done) {
    take_down(now);
    state_ = State::ended;
    acts_.emplace_back(act::Finish{});
    return;
  }
  const Error error = gang_->verdict.error();
  if (end == End::error) return fail(error);
  take_down(now);
  failed(now, error);
}

void GangCore::failed(Time now, const Error& error) {
  if (plan_.max_restarts >= 0 && results_.restarts >= plan_.max_restarts) {
    ErrorInfo info = error.info();
    info.code = Code::worker_died;
    info.message += ", after " + std::to_string(results_.restarts) + " restarts";
    return fail(WorkerDied(std::move(info)));
  }
  ++results_.restarts;
  if (growth_.grown_at != Time::max() && now - growth_.grown_at < kGrowthTrial &&
      !TROUPE_MUTANT("gang.flaps"))
    growth_.after = std::min<Duration>(2 * growth_.after, kMostGrowAfter);
  growth_.grown_at = Time::max();
  choose_start(without_room(error.message()));
}

void GangCore::fail(const Error& error) {
  if (gang_) acts_.emplace_back(act::Kill{});
  gang_.reset();
  state_ = State::ended;
  acts_.emplace_back(act::Fail{error});
}

void GangCore::take_down(Time now) {
  placing_.held = ranks_by_node();
  placing_.held_until = now + kStillHeld;
  state_ = State::placing;
  acts_.emplace_back(act::Kill{});
  gang_.reset();
}

void GangCore::tell_all(const WorkerOrder& order) {
  for (int rank = 0; rank < size(); ++rank)
    if (!gang_->verdict.over(rank)) acts_.emplace_back(act::Tell{rank, order});
}

// --- time

void GangCore::time(Time now) {
  if (state_ == State::ended) return;
  if (!gang_) {
    if (now < placing_.ask) return;
    placing_.ask = Time::max();
    placing_.asked = true;
    acts_.emplace_back(act::AskNodes{});
    return;
  }
  const bool doubted = gang_->doubt_until != Time::max();
  if (!doubted &&
      now >= std::exchange(gang_->limit, now < gang_->limit ? gang_->limit : Time::max()) &&
      !gang_->verdict.troubled()) {
    // Two gangs may be waiting for each other's resources.
    placing_.gather_within = std::min<Duration>(2 * placing_.gather_within, seconds(30));
    take_down(now);
    placing_.ask = now + milliseconds(1 + random_.below(1000));
    return;
  }
  if (now >= look_) {
    look_ = now + kLook;
    acts_.emplace_back(act::AskNodes{});
  }
  settle(now);
}

Time GangCore::next() const {
  if (state_ == State::ended) return Time::max();
  if (!gang_) return placing_.ask;
  if (gang_->doubt_until != Time::max()) return look_;
  const Time move = gang_->verdict.troubled() ? Time::max() : gang_->move_by;
  return std::min({look_, gang_->limit, gang_->grace, gang_->ask_at, move});
}

}  // namespace troupe::train::internal
