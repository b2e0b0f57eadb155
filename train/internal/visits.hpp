/// The order in which a step visits layers and their units: what the engine does and what the
/// planner rehearses.
#pragma once

#include "troupe/train/params/index.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::train::internal {

/// With zero >= 2 a slab of gradients is in use until its reduction ends: so many at most. One
/// runs, one waits, and backward fills a third.
inline constexpr std::size_t kMostInFlight = 2;

/// Units that a layer reads, own and tied ones, ascending; index = layer. Empty units do not count.
using UnitsOfLayers = std::vector<std::vector<int>>;
UnitsOfLayers units_of_layers(const Index& index);

/// The layer whose backward is the last one to touch the gradients of unit u: index = unit.
std::vector<int> last_layers(const Index& index);

/// What a pass walks through.
enum class Walk : std::uint8_t { forward, forward_and_backward };

/// Layers that read units, in the order in which `passes` equal passes visit them.
class Visits {
 public:
  Visits() = default;
  Visits(const UnitsOfLayers& units, Walk walk, int passes);
  std::size_t size() const noexcept { return of_a_pass_.size() * passes_; }
  int operator[](std::size_t visit) const noexcept { return of_a_pass_[visit % of_a_pass_.size()]; }

 private:
  std::vector<int> of_a_pass_;
  std::size_t passes_ = 0;
};

}  // namespace troupe::train::internal
