#include "troupe/train/internal/gang_ranks.hpp"

#include <algorithm>
#include <utility>

namespace troupe::train::internal {
namespace {

/// How long a report waits for the other ranks before they are asked where they are.
constexpr Duration kReportWait = std::chrono::milliseconds(20);
/// How long the other ranks may take to end after a failure.
constexpr Duration kGrace = std::chrono::seconds(2);

}  // namespace

GangRanks::GangRanks(const FitOptions& options, Host& host)
    : host_(host),
      verdict_(options.workers),
      reports_(options.workers, options.metric, options.reduce) {}

GangRanks::~GangRanks() {
  take_down();
}

void GangRanks::add(WorkerHandle worker) {
  loops_.follow(size(), worker.take);
  ranks_.push_back({std::move(worker)});
}

bool GangRanks::any_ready() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.ready; });
}

bool GangRanks::all_ready() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.ready; });
}

void GangRanks::begin() {
  tell_all({.kind = WorkerOrder::Kind::begin});
}

void GangRanks::judge(bool go_on) {
  tell_all({.kind = WorkerOrder::Kind::verdict, .go_on = go_on});
}

void GangRanks::take_down() {
  for (int rank = 0; rank < size(); ++rank) {
    loops_.forget(rank);
    at(rank).worker.kill();
  }
  ranks_.clear();
}

void GangRanks::hear(Time until) {
  const Time ask = keeps_waiting() ? steady_now() + kReportWait : Time::max();
  take(loops_.next(std::min({until, grace_, ask})));
  while (take(loops_.next({}))) {
  }
  if (steady_now() >= ask) ask_for_places();
}

void GangRanks::look_after() {
  // Reports cannot complete without rank 0 either, so its end also ends the waits for verdicts.
  if (!verdict_.troubled() && !verdict_.over(0)) return;
  if (!std::exchange(told_gone_, true))
    tell_all({.kind = WorkerOrder::Kind::gone, .missed_rank = verdict_.over(0) ? 0 : -1});
  if (!verdict_.troubled()) return;
  grace_ = std::min(grace_, steady_now() + kGrace);
  if (steady_now() >= grace_) verdict_.stop_waiting();
}

bool GangRanks::take(const std::optional<LoopController<WorkerEvent>::Heard>& heard) {
  if (!heard) return false;
  const int rank = heard->from;
  if (heard->death) {
    host_.died(rank, *heard->death);
    reports_.over(rank);
    return true;
  }
  for (const WorkerEvent& event : heard->events) {
    happened(rank, event);
    reports_.passed(rank, event.at);
  }
  if (verdict_.over(rank)) {
    loops_.forget(rank);
    reports_.over(rank);
  }
  return true;
}

void GangRanks::happened(int rank, const WorkerEvent& event) {
  using Kind = WorkerEvent::Kind;
  switch (event.kind) {
    case Kind::ready: at(rank).ready = true; return;
    case Kind::reported: reports_.reported(rank, event.at, event.metrics); return;
    case Kind::passed: at(rank).asked = false; return;
    case Kind::saved: host_.saved(event.saved); return;
    case Kind::restored: host_.restored(event.hash); return;
    case Kind::ended: ended(rank, event); return;
  }
}

void GangRanks::ended(int rank, const WorkerEvent& event) {
  const std::optional<Error> error = error_of(event.error);
  if (!error) return verdict_.returned(rank, event.at.step);
  host_.failed(rank, event.at.step, *error);
  verdict_.failed(rank, {event.at.step, *error, event.missed_others, event.missed_rank});
}

/// Returns whether a report waits for a rank that was not asked yet, and which may have passed
/// that place without a report.
bool GangRanks::keeps_waiting() const {
  for (int rank = 0; rank < size(); ++rank)
    if (!ranks_[static_cast<std::size_t>(rank)].asked && reports_.waits_for(rank)) return true;
  return false;
}

void GangRanks::ask_for_places() {
  const std::optional<Position> open = reports_.open();
  for (int rank = 0; open && rank < size(); ++rank) {
    if (at(rank).asked || !reports_.waits_for(rank)) continue;
    at(rank).asked = true;
    at(rank).worker.watch(*open);
  }
}

void GangRanks::tell_all(const WorkerOrder& order) {
  for (int rank = 0; rank < size(); ++rank)
    if (!verdict_.over(rank)) at(rank).worker.tell(order);
}

}  // namespace troupe::train::internal
