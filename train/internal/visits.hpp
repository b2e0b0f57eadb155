/// The order in which a step visits layers and their units. The engine follows it, and the
/// planner (params/plan.hpp) rehearses it.
#pragma once

#include "troupe/train/params/index.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::train::internal {

/// With zero >= 2 a gradient slab stays in use until its reduction ends. At most this many
/// reductions are in flight: one runs and one waits, while backward fills a third slab.
inline constexpr std::size_t kMostInFlight = 2;

/// For each layer the units that it reads, its own and tied ones, ascending. Empty units are left
/// out.
using UnitsOfLayers = std::vector<std::vector<int>>;
UnitsOfLayers units_of_layers(const Index& index);

/// Returns for each unit the layer whose backward pass is the last one to add to its gradients.
std::vector<int> last_layers(const Index& index);

/// Whether a pass walks forward alone or forward and back.
enum class Walk : std::uint8_t { forward, forward_and_backward };

/// The layers that read units, in the order in which `passes` equal passes visit them.
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
