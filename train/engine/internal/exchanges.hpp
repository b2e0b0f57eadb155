/// What a rank of a model moves in a step, counted without running it.
#pragma once

#include "troupe/train/engine/internal/plan.hpp"
#include "troupe/train/params/plan.hpp"

namespace troupe::train::internal {

/// Over all but the data-parallel group, for micro-batches of the spec `in`. `index`: of the rank.
/// Throws InvalidArgument when that is no 64-bit number, and as plan_pass().
Exchanges count_exchanges(const Model& model, const Layout& layout, const RankPlan& rank,
                          const Index& index, const Spec& in);

}  // namespace troupe::train::internal
