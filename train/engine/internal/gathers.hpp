/// Gathers: all-gathers weights of units one layer ahead of the passes and releases them after
/// use. With zero < 3 weights are not sharded, and it does nothing.
#pragma once

#include "troupe/train/internal/visits.hpp"
#include "troupe/train/params/store.hpp"

#include <cstddef>

namespace troupe::train::internal {

class Gathers {
 public:
  Gathers(Store& store, const UnitsOfLayers& units) noexcept : store_(&store), units_(&units) {}

  /// Call it before the first of `passes` passes. Starts the gathers of the first layer that
  /// reads units.
  void begin(Walk walk, int passes);
  /// Call it before the layer runs. Starts the gathers of the next layer that reads units. The
  /// layer's own gathers were started before, and the store waits for them when the layer reads
  /// its weights.
  void enter(int layer);
  /// Releases the units of the layer.
  void leave(int layer);

 private:
  /// Returns whether weights are sharded. Then there is one stage, and passes visit all layers.
  bool is_needed() const noexcept { return store_->options().zero == 3; }
  void ask_ahead();

  Store* store_;
  const UnitsOfLayers* units_;
  Visits visits_;
  std::size_t asked_ = 0;  // visits whose gathers have started
  std::size_t now_ = 0;
};

}  // namespace troupe::train::internal
