#include "troupe/train/pipeline/schedule.hpp"

#include "troupe/train/internal/reject.hpp"
#include "troupe/train/pipeline/internal/checks.hpp"
#include "troupe/train/pipeline/internal/play.hpp"

#include <algorithm>

namespace troupe::train {
namespace {

using internal::PipelineShape;
using internal::reject;

void check_kind(ScheduleKind kind, const PipelineShape& shape) {
  shape.check();
  if (kind != ScheduleKind::interleaved && shape.v > 1)
    reject("pipeline: " + std::to_string(shape.v) +
           " stages a rank need the schedule interleaved: choose it, or one stage a rank");
  if (kind == ScheduleKind::interleaved && shape.m % shape.p != 0)
    reject("pipeline: interleaved runs micro-batches in rounds of pp = " + std::to_string(shape.p) +
           ", and " + std::to_string(shape.m) + " is no multiple of it: choose micro = " +
           std::to_string((shape.m / shape.p + 1) * shape.p) + ", or 1f1b");
}

/// Returns the k-th forward pass of a rank: it walks through its stages in rounds of p
/// micro-batches (Narayanan et al. 2021, section 2.2).
Action forward_of(const PipelineShape& shape, int rank, int k) {
  const int round = k / (shape.p * shape.v), chunk = k / shape.p % shape.v;
  return {Action::F, chunk * shape.p + rank, round * shape.p + k % shape.p};
}

/// Returns the k-th backward pass: like forward_of(), with the stages from last to first.
Action backward_of(const PipelineShape& shape, int rank, int k) {
  const Action forward = forward_of(shape, rank, k);
  const int chunk = forward.stage / shape.p;
  return {Action::B, (shape.v - 1 - chunk) * shape.p + rank, forward.micro};
}

/// Returns the number of forward passes before the first backward pass.
int warm_up(ScheduleKind kind, const PipelineShape& shape, int rank) {
  const int all = shape.m * shape.v, behind = shape.p - rank - 1;
  if (kind == ScheduleKind::gpipe) return all;
  return std::min(all, shape.v == 1 ? behind : 2 * behind + (shape.v - 1) * shape.p);
}

/// Returns a rank's computations. With v = 1 rounds have no effect, and micro-batches ascend.
std::vector<Action> computations_of(ScheduleKind kind, const PipelineShape& shape, int rank) {
  const int all = shape.m * shape.v, ahead = warm_up(kind, shape, rank);
  std::vector<Action> actions;
  actions.reserve(2 * static_cast<std::size_t>(all));
  for (int k = 0; k < all + ahead; ++k) {
    if (k < all) actions.push_back(forward_of(shape, rank, k));
    if (k >= ahead) actions.push_back(backward_of(shape, rank, k - ahead));
  }
  return actions;
}

/// A send and its receive, at the time at which the receiver begins to need the data.
struct Handover {
  double time = 0;
  Action send, receive;
};

/// Adds the transfer of the data that an action reads from another rank.
void add_handover(std::vector<Handover>& all, const Action& action, double time, int stages) {
  const auto [op, stage, micro] = action;
  if (op == Action::F && stage > 0)
    all.push_back({time, {Action::SendF, stage - 1, micro}, {Action::RecvF, stage, micro}});
  if ((op == Action::B || op == Action::I) && stage + 1 < stages)
    all.push_back({time, {Action::SendB, stage + 1, micro}, {Action::RecvB, stage, micro}});
}

std::vector<Handover> handovers(const Schedule& schedule, const internal::Played& played,
                                int stages) {
  std::vector<Handover> all;
  for (std::size_t r = 0; r < schedule.size(); ++r)
    for (std::size_t i = 0; i < schedule[r].size(); ++i)
      add_handover(all, schedule[r][i], played.spans[r][i].start, stages);
  std::stable_sort(all.begin(), all.end(),
                   [](const Handover& a, const Handover& b) { return a.time < b.time; });
  return all;
}

/// Merges all actions into one order of time, in which a send and its receive are neighbours.
/// Each rank's list is a part of this order, so ranks cannot wait for each other in a cycle.
Schedule merge(const Schedule& computations, const internal::Played& played,
               const std::vector<Handover>& all) {
  const int p = static_cast<int>(computations.size());
  Schedule merged(computations.size());
  std::vector<std::size_t> done(computations.size());
  const auto put = [&](std::size_t rank, double time) {
    const auto& list = computations[rank];
    for (std::size_t& i = done[rank]; i < list.size() && played.spans[rank][i].start < time; ++i)
      merged[rank].push_back(list[i]);
  };
  for (const Handover& each : all)
    for (const Action& end : {each.send, each.receive}) {
      const auto rank = static_cast<std::size_t>(rank_of_stage(end.stage, p));
      put(rank, each.time);
      merged[rank].push_back(end);
    }
  for (std::size_t r = 0; r < merged.size(); ++r)
    merged[r].insert(merged[r].end(),
                     computations[r].begin() + static_cast<std::ptrdiff_t>(done[r]),
                     computations[r].end());
  return merged;
}

}  // namespace

std::size_t group_end(const std::vector<Action>& actions, std::size_t at) noexcept {
  while (at < actions.size() && is_transfer(actions[at].op)) ++at;
  return at;
}

Schedule generate(ScheduleKind kind, int p, int m, int v) {
  const PipelineShape shape{p, m, v};
  check_kind(kind, shape);
  Schedule schedule;
  for (int r = 0; r < p; ++r) schedule.push_back(computations_of(kind, shape, r));
  return lower(schedule);
}

Schedule lower(const Schedule& computations) {
  if (internal::has_transfers(computations))
    reject(
        "schedule: it has sends and receives already: lower a list of F, B, I and W alone, or "
        "validate this one");
  const PipelineShape shape = internal::shape_of(computations);
  internal::check_actions(computations, shape, internal::With::computations);
  // Integral times: they are exact, and F takes as long as B.
  const internal::Played played =
      internal::play(computations, shape, {.forward = 2, .input = 1, .weight = 1});
  internal::check_ends(computations, played);
  if (shape.p == 1) return computations;
  return merge(computations, played, handovers(computations, played, shape.stages()));
}

}  // namespace troupe::train
