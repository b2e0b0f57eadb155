/// How long a schedule takes and what it keeps, without running it.
///
///     const Timeline timeline = simulate(schedule, {.forward = 1, .input = 1, .weight = 1});
///     std::printf("%.1f%% of the time is idle\n", 100 * timeline.bubble);
#pragma once

#include "troupe/train/pipeline/schedule.hpp"

#include <vector>

namespace troupe::train {

/// Of one stage and micro-batch, in any unit of time. B takes input + weight.
struct Costs {
  double forward = 1;
  double input = 0.5;
  double weight = 0.5;
  double transfer = 0;  ///< from the time at which both sides have asked for it
};

struct Span {
  double start = 0, end = 0;
};

struct Timeline {
  std::vector<std::vector<Span>> spans;  ///< of each action, as in the schedule
  double makespan = 0;                   ///< the last end
  double bubble = 0;                     ///< share of the ranks' time in which none computes
};

/// Sends are rendezvous (PIPE-2). A schedule without any hands over at once and without cost.
/// Throws InvalidArgument, one sentence, for a schedule that validate() refuses.
TROUPE_API Timeline simulate(const Schedule& schedule, const Costs& costs = {});

/// Micro-batches whose activations are kept at one time, from the begin of F to the end of B or W.
struct Live {
  std::vector<int> stages;  ///< the most of each stage
  std::vector<int> ranks;  ///< the most of each rank; one that is in two of its stages counts twice
};
/// GPipe keeps m on every rank, 1F1B min(m, p - rank). Throws InvalidArgument as simulate().
TROUPE_API Live live_micro_batches(const Schedule& schedule);

}  // namespace troupe::train
