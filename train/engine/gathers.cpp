#include "troupe/train/engine/internal/gathers.hpp"

#include <algorithm>
#include <utility>

namespace troupe::train::internal {

UnitsOfLayers units_of_layers(const Index& index) {
  UnitsOfLayers all;
  for (std::size_t u = 0; u < index.units().size(); ++u) {
    const UnitPlace& unit = index.units()[u];
    std::vector<int> units;
    if (unit.size != 0) units.push_back(static_cast<int>(u));
    for (const TensorId id : unit.tied) units.push_back(index[index[id].tied_to].unit);
    std::sort(units.begin(), units.end());
    units.erase(std::unique(units.begin(), units.end()), units.end());
    all.push_back(std::move(units));
  }
  return all;
}

std::vector<int> visits_of(int layers, Walk walk, int passes) {
  std::vector<int> visits;
  for (int pass = 0; pass < passes; ++pass) {
    for (int l = 0; l < layers; ++l) visits.push_back(l);
    if (walk == Walk::forward) continue;
    for (int l = layers; l-- > 0;) visits.push_back(l);
  }
  return visits;
}

void Gathers::begin(std::vector<int> visits) {
  visits_ = std::move(visits);
  std::erase_if(visits_, [this](int l) { return (*units_)[static_cast<std::size_t>(l)].empty(); });
  asked_ = now_ = 0;
  ask_ahead();
}

void Gathers::ask_ahead() {
  if (asked_ == visits_.size()) return;
  for (const int unit : (*units_)[static_cast<std::size_t>(visits_[asked_])]) store_->gather(unit);
  ++asked_;
}

void Gathers::enter(int layer) {
  if ((*units_)[static_cast<std::size_t>(layer)].empty()) return;
  TROUPE_ASSERT(now_ < visits_.size() && visits_[now_] == layer, "a visit that was not announced");
  ++now_;
  ask_ahead();
}

void Gathers::leave(int layer) {
  for (const int unit : (*units_)[static_cast<std::size_t>(layer)]) store_->release(unit);
}

}  // namespace troupe::train::internal
