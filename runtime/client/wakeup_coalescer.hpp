/// Decides whether a worker wakes a sleeping caller for each reply, where both share one CPU.
/// There the caller would take the CPU for one reply and sleep again, which costs more than a
/// small task. So replies that come soon after each other share a wake-up.
///
///     if (!more_to_run || !late.puts_off(caller, now)) wake(caller), wake(late.take());
///     wake(late.take());               // when the thread is idle, and once a millisecond
///
/// A plain state machine.
#pragma once

#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/client/lazy_time.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace troupe::client {

class WakeupCoalescer {
 public:
  /// Replies further apart than this get a wake-up each.
  static constexpr Duration kSoon = std::chrono::microseconds(50);
  /// The longest wait of the first reply for the others of its wake-up. (A later call that takes
  /// much longer than the ones before exceeds it; the take() of every millisecond ends that
  /// wait.)
  static constexpr Duration kLongest = std::chrono::microseconds(100);

  /// The time without a look at the clock: the number of replies in it is estimated from the pace
  /// of the last ones.
  static constexpr Duration kUnseen = std::chrono::microseconds(16);
  static constexpr int kMostUnseen = 16;

  /// Called when a reply has found `caller` (not 0) asleep and another call runs next. Returns
  /// true when the wake-up is put off: a later reply or take() brings it. False: wake the caller
  /// now, and also the one that take() returns.
  bool puts_off(ProcessIndex caller, const LazyTime& now) noexcept {
    if (owed_ == caller && passed_ < let_pass_) {
      ++passed_;
      return true;
    }
    // The mean gap of all replies since the clock was last read.
    const Duration gap = (now() - last_) / (std::exchange(passed_, 0) + 1);
    last_ = now();
    if (gap >= kSoon) return false;
    if (owed_ != 0 && (owed_ != caller || last_ - since_ >= kLongest)) return false;
    if (owed_ == 0) since_ = last_;
    owed_ = caller;
    let_pass_ = static_cast<int>(kUnseen / std::max(gap, kUnseen / kMostUnseen));
    return true;
  }
  /// Returns the caller that must be woken now; 0: none.
  ProcessIndex take() noexcept { return std::exchange(owed_, ProcessIndex{}); }

 private:
  ProcessIndex owed_;
  Time since_{};      ///< the first reply that `owed_` has not been woken for
  Time last_{};       ///< the last reply for which the clock was read
  int passed_ = 0;    ///< replies since then
  int let_pass_ = 0;  ///< how many of these may pass
};

}  // namespace troupe::client
