/// Plays a schedule without computing: finds when each action begins and ends, or which ranks
/// deadlock.
#pragma once

#include "troupe/train/pipeline/internal/places.hpp"
#include "troupe/train/pipeline/simulate.hpp"

#include <vector>

namespace troupe::train::internal {

/// The position of an action in a schedule.
struct ActionPlace {
  int rank = -1;
  int at = -1;
};

/// A blocked rank: it stands at the action `at` until the action `waits_for` has begun or ended.
struct Blocked {
  ActionPlace at, waits_for;
};

struct Played {
  std::vector<std::vector<Span>> spans;  ///< one for each action of the schedule
  std::vector<Blocked> blocked;          ///< one for each rank that did not come to its end
};

/// Plays a schedule. Actions must be in the shape and on the ranks of their stages, and each must
/// occur once; the n-th send of a rank to another one must have an n-th receive there. Transfers
/// are rendezvous, group by group. In a schedule without transfers a computation's result is
/// available everywhere at once. Costs time in proportion to the actions.
Played play(const Schedule& schedule, const PipelineShape& shape, const Costs& costs);

/// Returns a cycle among the blocked ranks, each waiting for the next one and the last for the
/// first. `blocked` must not be empty.
std::vector<Blocked> circle_of(const std::vector<Blocked>& blocked);

}  // namespace troupe::train::internal
