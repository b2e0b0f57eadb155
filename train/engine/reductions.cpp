#include "troupe/train/engine/internal/reductions.hpp"

#include <algorithm>

namespace troupe::train::internal {
namespace {

std::vector<int> adders_of(const Index& index, const UnitsOfLayers& units) {
  std::vector<int> adders(index.units().size());
  for (const std::vector<int>& of_layer : units)
    for (const int unit : of_layer) ++adders[static_cast<std::size_t>(unit)];
  for (std::size_t u = 0; u < adders.size(); ++u) {
    const std::vector<TensorId>& uses = index.units()[u].tied;
    if (std::any_of(uses.begin(), uses.end(), [&](TensorId id) { return index[id].remote; }))
      ++adders[u];
  }
  return adders;
}

}  // namespace

Reductions::Reductions(Store& store, const UnitsOfLayers& units, kernels::Device& device,
                       collective::Communicator* tp)
    : store_(&store),
      units_(&units),
      partials_(store, device, tp),
      bounded_(store.options().zero >= 2),
      adders_(adders_of(store.index(), units)),
      missing_(adders_) {}

void Reductions::reset() {
  submitted_ = 0;
  missing_ = adders_;
}

bool Reductions::has(int unit) const noexcept {
  return std::find(flights_.begin(), flights_.end(), unit) != flights_.end();
}

void Reductions::begin(int unit) {
  while (has(unit)) finish_next();  // the previous micro-batch's
  store_->begin_gradients(unit);
}

void Reductions::finish_layer(int layer, bool last_micro) {
  for (const int unit : (*units_)[static_cast<std::size_t>(layer)]) count_down(unit, last_micro);
}

void Reductions::finish_remote(int unit) {
  count_down(unit, true);
}

void Reductions::count_down(int unit, bool last_micro) {
  int& missing = missing_[static_cast<std::size_t>(unit)];
  if (--missing > 0) return;
  missing = adders_[static_cast<std::size_t>(unit)];  // for the next micro-batch
  submit(unit, last_micro);
}

void Reductions::submit(int unit, bool last_micro) {
  while (bounded_ && flights_.size() >= kMostInFlight) finish_next();
  if (last_micro) store_->add_tied(unit);
  partials_.sum(unit);
  store_->reduce(unit);
  flights_.push_back(unit);
  submitted_ += store_->index().units()[static_cast<std::size_t>(unit)].used *
                static_cast<std::int64_t>(sizeof(float));
}

int Reductions::finish_next() {
  if (flights_.empty()) return -1;
  const int unit = flights_.front();
  flights_.pop_front();
  store_->finish_reduce(unit);
  return unit;
}

}  // namespace troupe::train::internal
