/// The steps of validate(), which lower() and simulate() share.
#pragma once

#include "troupe/train/pipeline/internal/play.hpp"

namespace troupe::train::internal {

enum class With : std::uint8_t {
  computations,  ///< the schedule has F, B, I and W alone
  transfers,     ///< the schedule has all transfers between neighbours on different ranks
};

/// Checks that each action is on its rank, occurs once, and comes after the actions of its rank
/// that it needs.
void check_actions(const Schedule& schedule, const PipelineShape& shape, With with);
/// Checks that the n-th send of a rank to another one is what the other receives n-th from it.
void check_pairs(const Schedule& schedule, const PipelineShape& shape);
/// Throws for a deadlock: unless every rank has come to its end.
void check_ends(const Schedule& schedule, const Played& played);

}  // namespace troupe::train::internal
