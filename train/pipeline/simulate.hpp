/// Computes the time and the memory of a schedule without running it.
///
///     const Timeline timeline = simulate(schedule, {.forward = 1, .input = 1, .weight = 1});
///     std::printf("%.1f%% of the time is idle\n", 100 * timeline.bubble);
#pragma once

#include "troupe/train/pipeline/schedule.hpp"

#include <vector>

namespace troupe::train {

/// Costs for one stage and micro-batch, in any unit of time. B takes input + weight.
struct Costs {
  double forward = 1;
  double input = 0.5;
  double weight = 0.5;
  double transfer = 0;  ///< from the time at which both sides have posted it
};

struct Span {
  double start = 0, end = 0;
};

struct Timeline {
  std::vector<std::vector<Span>> spans;  ///< of each action, as in the schedule
  double makespan = 0;                   ///< end of the last action
  double bubble = 0;                     ///< share of the ranks' time without computation
};

/// Simulates a schedule. Sends are rendezvous (PIPE-2). In a schedule without transfers results
/// are available at once and without cost. Throws InvalidArgument, one sentence, for a schedule
/// that validate() refuses.
TROUPE_API Timeline simulate(const Schedule& schedule, const Costs& costs = {});

/// Micro-batches whose activations are live at one time, from the begin of F to the end of B or
/// W.
struct Live {
  std::vector<int> stages;  ///< the most of each stage
  /// The most of each rank. A micro-batch that is live in two of its stages counts twice.
  std::vector<int> ranks;
};
/// Counts live micro-batches: m on every rank for GPipe, min(m, p - rank) for 1F1B. Throws like
/// simulate().
TROUPE_API Live live_micro_batches(const Schedule& schedule);

}  // namespace troupe::train
