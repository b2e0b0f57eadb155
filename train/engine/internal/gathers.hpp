/// Weights of units while layers run: gathered one visit ahead, released behind.
///
/// Below zero = 3 every unit is there at any time, and all of this does nothing.
#pragma once

#include "troupe/train/params/store.hpp"

#include <span>
#include <vector>

namespace troupe::train::internal {

/// Units that a layer reads, own and tied ones; index = layer. Empty units do not count.
using UnitsOfLayers = std::vector<std::vector<int>>;
UnitsOfLayers units_of_layers(const Index& index);

/// Layers in the order in which passes visit them: forward alone, or forward and then backward,
/// `passes` times.
enum class Walk : std::uint8_t { forward, forward_and_backward };
std::vector<int> visits_of(int layers, Walk walk, int passes);

class Gathers {
 public:
  Gathers(Store& store, const UnitsOfLayers& units) noexcept : store_(&store), units_(&units) {}

  /// The visits to come; asks for the units of the first.
  void begin(std::vector<int> visits);
  /// Asks for the units of the next visit that has any. The layer's own were asked for; the store
  /// waits for them where they are read.
  void enter(int layer);
  void leave(int layer);

 private:
  void ask_ahead();

  Store* store_;
  const UnitsOfLayers* units_;
  std::vector<int> visits_;
  std::size_t asked_ = 0;  // visits whose units are asked for
  std::size_t now_ = 0;
};

}  // namespace troupe::train::internal
