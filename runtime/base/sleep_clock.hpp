/// The clock that goes on while the machine sleeps (a lid, `systemctl suspend`), beside the one
/// that does not.
#pragma once

#include "troupe/runtime/base/clock.hpp"

#include <ctime>
#include <utility>

namespace troupe {

/// Since this machine was started: CLOCK_BOOTTIME, which goes on while the machine sleeps, where
/// the monotonic clock stands still (as cheap).
inline Duration up_time() noexcept {
  timespec t{};
  clock_gettime(CLOCK_BOOTTIME, &t);
  return std::chrono::seconds(t.tv_sec) + Duration(t.tv_nsec);
}

/// A plain state machine that tells when the machine has slept, and what the other clock says then.
///
///     const Duration up = up_time();                  // first: who loses the CPU between the two
///     if (clock.slept(up, steady_now())) ...          // has not slept
class SleepClock {
 public:
  /// Whether the machine has slept since the call before.
  bool slept(Duration up, Time now) noexcept {
    const Duration ahead = up - now.time_since_epoch();
    const bool first = !std::exchange(begun_, true);
    const bool slept = !first && ahead - ahead_ > kShortest;
    if (first || ahead > ahead_) ahead_ = ahead;
    return slept;
  }
  /// What the clock that goes on says at `time`, if the machine does not sleep until then.
  Duration up_at(Time time) const noexcept { return time.time_since_epoch() + ahead_; }

 private:
  static constexpr Duration kShortest = std::chrono::milliseconds(100);
  bool begun_ = false;
  Duration ahead_{};
};

}  // namespace troupe
