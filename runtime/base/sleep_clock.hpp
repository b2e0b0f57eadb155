/// CLOCK_BOOTTIME, which goes on while the machine sleeps (closed lid, `systemctl suspend`), and a
/// detector of such sleep.
#pragma once

#include "troupe/runtime/base/clock.hpp"

#include <ctime>
#include <utility>

namespace troupe {

/// Returns the time since this machine was started (CLOCK_BOOTTIME). It goes on while the machine
/// sleeps; the monotonic clock stands still then. As cheap as steady_now().
inline Duration up_time() noexcept {
  timespec t{};
  clock_gettime(CLOCK_BOOTTIME, &t);
  return std::chrono::seconds(t.tv_sec) + Duration(t.tv_nsec);
}

/// A plain state machine that detects when the machine has slept, and converts a Time to up_time().
///
///     const Duration up = up_time();             // read up_time() first: losing the CPU between
///     if (clock.slept(up, steady_now())) ...     // the two reads then does not look like sleep
class SleepClock {
 public:
  /// Returns whether the machine has slept since the call before.
  bool slept(Duration up, Time now) noexcept {
    const Duration ahead = up - now.time_since_epoch();
    const bool first = !std::exchange(begun_, true);
    const bool slept = !first && ahead - ahead_ > kShortest;
    if (first || ahead > ahead_) ahead_ = ahead;
    return slept;
  }
  /// Returns the up_time() at `time`, if the machine does not sleep until then.
  Duration up_at(Time time) const noexcept { return time.time_since_epoch() + ahead_; }

 private:
  static constexpr Duration kShortest = std::chrono::milliseconds(100);
  bool begun_ = false;
  Duration ahead_{};
};

}  // namespace troupe
