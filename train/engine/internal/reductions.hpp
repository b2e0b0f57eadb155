/// Gradients of units on their way through the data-parallel group, in the order of submission.
#pragma once

#include "troupe/train/params/store.hpp"

#include <cstdint>
#include <deque>
#include <vector>

namespace troupe::train::internal {

class Reductions {
 public:
  /// With zero >= 2 a slab of gradients is in use until its reduction ends: so many at most. One
  /// runs, one waits, and backward fills a third.
  static constexpr std::size_t kMostInFlight = 2;

  explicit Reductions(Store& store);

  /// The layer whose backward is the last one to touch the gradients of unit u: index = unit.
  static std::vector<int> last_layers(const Index& index);

  /// Before a backward adds to the unit's gradients.
  void begin(int unit);
  /// Its gradients of this micro-batch are whole. Returns at once, unless too many are in flight.
  /// `last_micro`: tied uses are added first.
  void submit(int unit, bool last_micro);
  /// Waits for the next one in order of submission; result: its unit, or -1 when none is left.
  int finish_next();
  /// Bytes of what was submitted since reset().
  std::int64_t submitted() const noexcept { return submitted_; }
  void reset() noexcept { submitted_ = 0; }

 private:
  bool has(int unit) const noexcept;

  Store* store_;
  bool bounded_;
  std::int64_t submitted_ = 0;
  std::deque<int> flights_;  // units
};

}  // namespace troupe::train::internal
