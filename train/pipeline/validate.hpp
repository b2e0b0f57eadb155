/// validate(): checks that a schedule computes a training step and does not deadlock.
///
///     validate(read_schedule("zero_bubble.txt"), /*p=*/4, /*m=*/8, /*v=*/1);
#pragma once

#include "troupe/train/pipeline/schedule.hpp"

namespace troupe::train {

/// Checks a schedule with its transfers for p ranks, m micro-batches and v stages on each rank:
///  - every action is on its stage's rank; each stage and micro-batch has F and B, or F, I and W,
///    once, and once the transfers that its neighbours on other ranks need;
///  - F comes before B or I, and I before W; receives come before the actions that read their
///    data, and sends after the actions that make it;
///  - the n-th send of a rank to another one matches the n-th receive there (PIPE-2);
///  - with rendezvous every rank comes to its end.
///
/// Throws InvalidArgument, one sentence that names the rank, the action and what to change; for a
/// deadlock it names the cycle of ranks and what each waits for. Costs time in proportion to the
/// actions.
TROUPE_API void validate(const Schedule& schedule, int p, int m, int v = 1);

}  // namespace troupe::train
