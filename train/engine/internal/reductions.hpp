/// Reductions: sums the gradients of units over the data-parallel group, in the order of
/// submission.
#pragma once

#include "troupe/train/engine/internal/partials.hpp"
#include "troupe/train/internal/visits.hpp"
#include "troupe/train/params/store.hpp"

#include <cstdint>
#include <deque>
#include <vector>

namespace troupe::train::internal {

/// With zero >= 2, at most kMostInFlight reductions are in flight at one time.
class Reductions {
 public:
  Reductions(Store& store, const UnitsOfLayers& units, kernels::Device& device,
             collective::Communicator* tp);

  /// Call it before a backward pass adds to the unit's gradients.
  void begin(int unit);
  /// Call it when the layer has added all its gradients of this micro-batch (zero >= 2), or of
  /// all micro-batches. Submits the units to which no other layer still adds. Sums partial
  /// gradients over tp first, and adds those of tied uses on `last_micro`. Returns at once,
  /// unless too many reductions are in flight or partial gradients must be summed.
  void finish_layer(int layer, bool last_micro);
  /// Call it once a step when gradients of the unit's tensors from other pipeline ranks have been
  /// added. Like finish_layer() otherwise.
  void finish_remote(int unit);
  /// Waits for the oldest reduction. Returns its unit, or -1 when none is in flight.
  int finish_next();
  /// Returns the bytes submitted since reset().
  std::int64_t submitted() const noexcept { return submitted_; }
  void reset();

 private:
  bool has(int unit) const noexcept;
  void count_down(int unit, bool last_micro);
  /// Returns at once, unless too many reductions are in flight.
  void submit(int unit, bool last_micro);

  Store* store_;
  const UnitsOfLayers* units_;
  Partials partials_;
  bool bounded_;
  std::int64_t submitted_ = 0;
  std::vector<int> adders_;  // of each unit: layers that add, and one for all uses on other ranks
  std::vector<int> missing_;
  std::deque<int> flights_;  // units in flight
};

}  // namespace troupe::train::internal
