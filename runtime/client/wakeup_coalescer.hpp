/// Whether a caller that sleeps is woken for each reply, where it shares one CPU with the worker
/// that answers. There it would take the CPU for one reply and go back to sleep, which costs more
/// than a small task: so of replies that come one soon after the other some share a wake-up.
///
///     if (!more_to_run || !late.puts_off(caller, now)) wake(caller), wake(late.take());
///     wake(late.take());               // whenever its thread has time, and once in a millisecond
///
/// A plain state machine.
#pragma once

#include "troupe/runtime/client/lazy_time.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace troupe::client {

class WakeupCoalescer {
 public:
  /// Calls that end further apart than this are worth a wake-up each.
  static constexpr Duration kSoon = std::chrono::microseconds(50);
  /// The first of those that share one does not wait longer than this for the others. (For a call
  /// that takes much longer than those before it, it does: that is what the millisecond is for.)
  static constexpr Duration kLongest = std::chrono::microseconds(100);

  /// Those that may come, at the pace of the last ones, until the clock is looked at again.
  static constexpr Duration kUnseen = std::chrono::microseconds(16);
  static constexpr int kMostUnseen = 16;

  /// A reply has found `caller`, not 0, asleep, and another call is run next. True: it is woken
  /// after a later reply, or by take(). False: now, and so is whom take() names.
  bool puts_off(std::uint64_t caller, const LazyTime& now) noexcept {
    if (owed_ == caller && passed_ < let_pass_) {
      ++passed_;
      return true;
    }
    const Duration gap = (now() - last_) / (std::exchange(passed_, 0) + 1);
    last_ = now();
    if (gap >= kSoon) return false;
    if (owed_ != 0 && (owed_ != caller || last_ - since_ >= kLongest)) return false;
    if (owed_ == 0) since_ = last_;
    owed_ = caller;
    let_pass_ = static_cast<int>(kUnseen / std::max(gap, kUnseen / kMostUnseen));
    return true;
  }
  /// Who is to be woken now; 0: nobody.
  std::uint64_t take() noexcept { return std::exchange(owed_, 0); }

 private:
  std::uint64_t owed_ = 0;
  Time since_{};    ///< the first reply of which `owed_` does not know
  Time last_{};     ///< the last reply that found its caller asleep, and for which `now` was asked
  int passed_ = 0;  ///< since then
  int let_pass_ = 0;  ///< of these, the most
};

}  // namespace troupe::client
