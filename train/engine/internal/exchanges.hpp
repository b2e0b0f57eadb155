/// Counts the bytes that a rank of a model sends in a step, without running it, for the planner.
#pragma once

#include "troupe/train/engine/internal/plan.hpp"
#include "troupe/train/params/plan.hpp"

namespace troupe::train::internal {

/// Counts traffic over all groups but the data-parallel one, for micro-batches of the spec `in`.
/// `index` is the rank's. Throws InvalidArgument when a count overflows 64 bits, and as
/// plan_pass().
Exchanges count_exchanges(const Model& model, const Layout& layout, const RankPlan& rank,
                          const Index& index, const Spec& in);

}  // namespace troupe::train::internal
