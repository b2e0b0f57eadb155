/// Gradients of units on their way through the data-parallel group, in the order of submission.
#pragma once

#include "troupe/train/engine/internal/partials.hpp"
#include "troupe/train/params/store.hpp"

#include <cstdint>
#include <deque>

namespace troupe::train::internal {

/// With zero >= 2 at most kMostInFlight at one time.
class Reductions {
 public:
  Reductions(Store& store, kernels::Device& device, collective::Communicator* tp);

  /// Before a backward adds to the unit's gradients.
  void begin(int unit);
  /// Its gradients of this micro-batch are whole. Partial ones are summed over tp first, and tied
  /// uses are added when it is the `last_micro`. Returns at once, unless too many are in flight or
  /// there is something to sum.
  void submit(int unit, bool last_micro);
  /// Waits for the next one in order of submission; result: its unit, or -1 when none is left.
  int finish_next();
  /// Bytes of what was submitted since reset().
  std::int64_t submitted() const noexcept { return submitted_; }
  void reset() noexcept { submitted_ = 0; }

 private:
  bool has(int unit) const noexcept;

  Store* store_;
  Partials partials_;
  bool bounded_;
  std::int64_t submitted_ = 0;
  std::deque<int> flights_;  // units
};

}  // namespace troupe::train::internal
