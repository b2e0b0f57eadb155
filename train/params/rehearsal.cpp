#include "troupe/train/params/internal/rehearsal.hpp"

#include "troupe/train/internal/sizes.hpp"

#include <algorithm>

namespace troupe::train::internal {
namespace {

constexpr std::int64_t kGradientBytes = sizeof(float);
constexpr const char* kTraffic = "the traffic of a step";

/// Micro-batches that are played: the first, one in the middle and the last. All in the middle
/// are alike.
constexpr int kRehearsed = 3;

}  // namespace

Rehearsal::Rehearsal(const Index& index, int zero, int micro, DType weights)
    : index_(index),
      zero_(index.dp() == 1 ? 0 : zero),
      weight_bytes_(kernels::size_of(weights)),
      pool_([](std::int64_t bytes) { return Slab{bytes}; }),
      read_(units_of_layers(index)),
      units_(index.units().size()),
      visits_(read_, Walk::forward_and_backward, std::min(micro, kRehearsed)) {
  const std::vector<int> last = last_layers(index);
  for (std::size_t u = 0; u < units_.size(); ++u)
    if (has(u)) units_[static_cast<std::size_t>(last[u])].completed.push_back(static_cast<int>(u));
  ask_ahead();
  const int rehearsed = std::min(micro, kRehearsed);
  for (int i = 0; i < rehearsed; ++i) {
    const Moved before = moved_;
    forward();
    backward(i + 1 == rehearsed);
    if (i == 1) repeat(before, micro - rehearsed);
  }
  update();
}

/// Adds the traffic since `before` another `times` times.
void Rehearsal::repeat(const Moved& before, std::int64_t times) {
  for (std::int64_t Moved::* kind : {&Moved::all_reduce, &Moved::reduce_scatter, &Moved::all_gather,
                                     &Moved::norm, &Moved::padding})
    moved_.*kind = add_product(moved_.*kind, moved_.*kind - before.*kind, times, kTraffic);
}

std::int64_t Rehearsal::bytes_of(std::size_t unit, std::int64_t element) const {
  return index_.units()[unit].size * element;
}

/// Counts an operation over the unit's slab that transfers factor * (ranks - 1) / ranks of its
/// bytes.
void Rehearsal::count(std::int64_t& counter, std::size_t unit, std::int64_t factor,
                      std::int64_t element) {
  const UnitPlace& place = index_.units()[unit];
  const std::int64_t times = factor * (index_.dp() - 1) * element;
  counter = add_product(counter, place.used, times, kTraffic);
  moved_.padding = add_product(moved_.padding, place.size - place.used, times, kTraffic);
}

void Rehearsal::ask_ahead() {
  if (asked_ == visits_.size()) return;
  for (const int unit : read_[static_cast<std::size_t>(visits_[asked_++])]) {
    const auto u = static_cast<std::size_t>(unit);
    if (zero_ < 3 || units_[u].gathered++ > 0) continue;
    pool_.take(bytes_of(u, weight_bytes_));
    count(moved_.all_gather, u, 1, weight_bytes_);
  }
}

void Rehearsal::enter(std::size_t unit) {
  if (!read_[unit].empty()) ask_ahead();
}

void Rehearsal::leave(std::size_t unit) {
  for (const int read : read_[unit]) {
    const auto u = static_cast<std::size_t>(read);
    if (zero_ == 3 && --units_[u].gathered == 0) pool_.give_back({bytes_of(u, weight_bytes_)});
  }
}

void Rehearsal::forward() {
  for (std::size_t u = 0; u < units_.size(); ++u) {
    enter(u);
    leave(u);
  }
}

void Rehearsal::backward(bool last) {
  for (std::size_t u = units_.size(); u-- > 0;) {
    if (has(u)) begin_gradients(u);
    enter(u);
    leave(u);
    for (const int unit : units_[u].completed)
      if (last || zero_ >= 2) submit(static_cast<std::size_t>(unit));
  }
}

void Rehearsal::begin_gradients(std::size_t unit) {
  while (units_[unit].in_flight) finish_next();
  if (zero_ >= 2) pool_.take(bytes_of(unit, kGradientBytes));
}

void Rehearsal::submit(std::size_t unit) {
  while (zero_ >= 2 && flights_.size() >= kMostInFlight) finish_next();
  if (zero_ == 0)
    count(moved_.all_reduce, unit, 2, kGradientBytes);
  else
    count(moved_.reduce_scatter, unit, 1, kGradientBytes);
  units_[unit].in_flight = true;
  flights_.push_back(unit);
}

void Rehearsal::finish_next() {
  const std::size_t unit = flights_.front();
  flights_.pop_front();
  units_[unit].in_flight = false;
  if (zero_ >= 2) pool_.give_back({bytes_of(unit, kGradientBytes)});
}

void Rehearsal::update() {
  while (!flights_.empty()) finish_next();
  const std::int64_t others = index_.dp() - 1;
  constexpr std::int64_t kDouble = sizeof(double);
  if (index_.dp() > 1) moved_.norm += 2 * others * kDouble;  // the loss
  if (zero_ > 0)
    moved_.norm = add_product(moved_.norm, index_.slab_size() / kChunk * kDouble, others, kTraffic);
  for (std::size_t u = 0; u < units_.size(); ++u)
    if (zero_ == 1 || zero_ == 2) count(moved_.all_gather, u, 1, weight_bytes_);
}

}  // namespace troupe::train::internal
