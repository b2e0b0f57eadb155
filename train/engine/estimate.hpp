/// What a step moves between data-parallel ranks, from the index alone.
///
///     const StepTraffic step = step_traffic(engine.index(), engine.layout());
///     step.payload(4);     // bytes that each of 4 ranks sends, as collective::Traffic counts them
#pragma once

#include "troupe/train/layout.hpp"
#include "troupe/train/params/index.hpp"

#include <cstdint>

namespace troupe::train {

/// Bytes of f32 tensors that one step reduces and gathers, without padding, norms and counts; each
/// unit as often as it is.
struct StepTraffic {
  std::int64_t all_reduced = 0;  ///< zero = 0: P; all of these for P bytes of parameters
  std::int64_t scattered = 0;    ///< zero = 1: P; zero >= 2: P for each micro-batch
  std::int64_t gathered = 0;     ///< zero = 1, 2: P; zero = 3: units as layers ask for them

  /// Bytes that each of the ranks sends: 2(N-1)/N of what is all-reduced, (N-1)/N of the rest;
  /// rounded down once.
  std::uint64_t payload(int ranks) const noexcept;
};

/// One unit a layer, as the engine declares them. With zero = 3 a unit is gathered once for each
/// run of consecutive visits of layers that read it: a pass of backward begins where forward ended,
/// and a micro-batch begins where the one before ended, so that those units stay.
TROUPE_API StepTraffic step_traffic(const Index& index, const Layout& layout);

}  // namespace troupe::train
