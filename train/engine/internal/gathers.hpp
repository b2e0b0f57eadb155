/// Weights of units while layers run: gathered one visit ahead, released behind.
///
/// Below zero = 3 every unit is there at any time, and all of this does nothing.
#pragma once

#include "troupe/train/internal/visits.hpp"
#include "troupe/train/params/store.hpp"

#include <cstddef>

namespace troupe::train::internal {

class Gathers {
 public:
  Gathers(Store& store, const UnitsOfLayers& units) noexcept : store_(&store), units_(&units) {}

  /// Before the first of so many passes; asks for the units of the first visit.
  void begin(Walk walk, int passes);
  /// Asks for the units of the next visit that has any. The layer's own were asked for; the store
  /// waits for them where they are read.
  void enter(int layer);
  void leave(int layer);

 private:
  /// Whether weights are shared; then there is one stage, and passes walk over all layers.
  bool is_needed() const noexcept { return store_->options().zero == 3; }
  void ask_ahead();

  Store* store_;
  const UnitsOfLayers* units_;
  Visits visits_;
  std::size_t asked_ = 0;  // visits whose units are asked for
  std::size_t now_ = 0;
};

}  // namespace troupe::train::internal
