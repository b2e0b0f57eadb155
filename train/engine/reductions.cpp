#include "troupe/train/engine/internal/reductions.hpp"

#include "troupe/train/internal/visits.hpp"

#include <algorithm>

namespace troupe::train::internal {

Reductions::Reductions(Store& store, kernels::Device& device, collective::Communicator* tp)
    : store_(&store), partials_(store, device, tp), bounded_(store.options().zero >= 2) {}

bool Reductions::has(int unit) const noexcept {
  return std::find(flights_.begin(), flights_.end(), unit) != flights_.end();
}

void Reductions::begin(int unit) {
  while (has(unit)) finish_next();  // of the micro-batch before
  store_->begin_gradients(unit);
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
