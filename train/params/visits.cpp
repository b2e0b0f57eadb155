#include "troupe/train/internal/visits.hpp"

#include <algorithm>
#include <utility>

namespace troupe::train::internal {

UnitsOfLayers units_of_layers(const Index& index) {
  UnitsOfLayers all;
  for (std::size_t u = 0; u < index.units().size(); ++u) {
    const UnitPlace& unit = index.units()[u];
    std::vector<int> units;
    if (unit.size != 0) units.push_back(static_cast<int>(u));
    for (const TensorId id : unit.tied)
      if (!index[index[id].tied_to].is_copy()) units.push_back(index[index[id].tied_to].unit);
    std::sort(units.begin(), units.end());
    units.erase(std::unique(units.begin(), units.end()), units.end());
    all.push_back(std::move(units));
  }
  return all;
}

std::vector<int> last_layers(const Index& index) {
  std::vector<int> last;
  for (std::size_t u = 0; u < index.units().size(); ++u) last.push_back(static_cast<int>(u));
  for (std::size_t u = 0; u < index.units().size(); ++u)
    for (const TensorId id : index.units()[u].tied) {
      const TensorPlace& tensor = index[index[id].tied_to];
      if (tensor.is_copy()) continue;
      int& owner = last[static_cast<std::size_t>(tensor.unit)];
      owner = std::min(owner, static_cast<int>(u));
    }
  return last;
}

Visits::Visits(const UnitsOfLayers& units, Walk walk, int passes)
    : passes_(static_cast<std::size_t>(passes)) {
  for (std::size_t l = 0; l < units.size(); ++l)
    if (!units[l].empty()) of_a_pass_.push_back(static_cast<int>(l));
  if (walk == Walk::forward) return;
  for (std::size_t i = of_a_pass_.size(); i-- > 0;) of_a_pass_.push_back(of_a_pass_[i]);
}

}  // namespace troupe::train::internal
