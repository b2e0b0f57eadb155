/// Whether a schedule computes a step, and ends.
///
///     validate(read_schedule("zero_bubble.txt"), /*p=*/4, /*m=*/8, /*v=*/1);
#pragma once

#include "troupe/train/pipeline/schedule.hpp"

namespace troupe::train {

/// Holds a schedule with its transfers against p ranks, m micro-batches and v stages a rank:
///  - every action is on its stage's rank; each stage and micro-batch has F and B, or F, I and W,
///    once, and the transfers that its neighbours on other ranks need, once;
///  - F comes before B or I, W behind I; receives come before what reads them, sends behind what
///    makes their data;
///  - the n-th send of a rank to another is what the other receives n-th from it (PIPE-2);
///  - with sends as rendezvous every rank comes to its end.
///
/// Throws InvalidArgument, one sentence that names the rank, the action and what to change; for a
/// deadlock the circle of ranks and what each waits for. Costs time in proportion to the actions.
TROUPE_API void validate(const Schedule& schedule, int p, int m, int v = 1);

}  // namespace troupe::train
