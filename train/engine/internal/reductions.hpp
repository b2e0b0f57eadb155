/// Gradients of units on their way through the data-parallel group, in the order of submission.
#pragma once

#include "troupe/train/engine/internal/partials.hpp"
#include "troupe/train/internal/visits.hpp"
#include "troupe/train/params/store.hpp"

#include <cstdint>
#include <deque>
#include <vector>

namespace troupe::train::internal {

/// With zero >= 2 at most kMostInFlight at one time.
class Reductions {
 public:
  Reductions(Store& store, const UnitsOfLayers& units, kernels::Device& device,
             collective::Communicator* tp);

  /// Before a backward adds to the unit's gradients.
  void begin(int unit);
  /// The layer has added all that it adds to gradients of this micro-batch, or of all of them. The
  /// units that no other one adds to any more are submitted: partial gradients are summed over tp
  /// first, and tied uses are added when it is the `last_micro`. Returns at once, unless too many
  /// are in flight or there is something to sum.
  void finish_layer(int layer, bool last_micro);
  /// The same of the uses of the unit's tensors on other ranks of the pipeline: once a step.
  void finish_remote(int unit);
  /// Waits for the next one in order of submission; result: its unit, or -1 when none is left.
  int finish_next();
  /// Bytes of what was submitted since reset().
  std::int64_t submitted() const noexcept { return submitted_; }
  void reset();

 private:
  bool has(int unit) const noexcept;
  void count_down(int unit, bool last_micro);
  /// Returns at once, unless too many are in flight.
  void submit(int unit, bool last_micro);

  Store* store_;
  const UnitsOfLayers* units_;
  Partials partials_;
  bool bounded_;
  std::int64_t submitted_ = 0;
  std::vector<int> adders_;  // of each unit: layers, and one for all uses on other ranks
  std::vector<int> missing_;
  std::deque<int> flights_;  // units
};

}  // namespace troupe::train::internal
