/// Runs a schedule without computing: when each action would begin and end, or what waits for ever.
#pragma once

#include "troupe/train/pipeline/internal/places.hpp"
#include "troupe/train/pipeline/simulate.hpp"

#include <vector>

namespace troupe::train::internal {

/// An action of a schedule.
struct ActionPlace {
  int rank = -1;
  int at = -1;
};

/// A rank that cannot go on: it stands at one action until another one has begun or ended.
struct Blocked {
  ActionPlace at, waits_for;
};

struct Played {
  std::vector<std::vector<Span>> spans;  ///< as the schedule
  std::vector<Blocked> blocked;          ///< one for each rank that did not come to its end
};

/// Actions are in the shape, on the ranks of their stages, and each occurs once; the n-th send of a
/// rank to another has an n-th receive there. Ranks exchange with rendezvous, group by group. A
/// schedule without transfers hands over at once what a computation has made. Costs time in
/// proportion to the actions.
Played play(const Schedule& schedule, const PipelineShape& shape, const Costs& costs);

/// A circle among ranks that are blocked, each waiting for the next and the last for the first.
/// `blocked` must not be empty.
std::vector<Blocked> circle_of(const std::vector<Blocked>& blocked);

}  // namespace troupe::train::internal
