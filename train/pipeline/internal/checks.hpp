/// The parts of validate().
#pragma once

#include "troupe/train/pipeline/internal/play.hpp"

namespace troupe::train::internal {

enum class With : std::uint8_t {
  computations,  ///< F, B, I, W alone
  transfers,     ///< all that neighbours on other ranks need
};

/// Each action is where it belongs, occurs once and stands in an order that its rank can follow.
void check_actions(const Schedule& schedule, const PipelineShape& shape, With with);
/// The n-th send of a rank to another is the n-th receive there.
void check_pairs(const Schedule& schedule, const PipelineShape& shape);
/// No rank is blocked.
void check_ends(const Schedule& schedule, const Played& played);

}  // namespace troupe::train::internal
