/// The end of a wait whose length a user gives.
///
///     const Time deadline = deadline_after(steady_now(), options.timeout);
///     const Duration left = time_left(deadline, steady_now());
#pragma once

#include "troupe/runtime/base/clock.hpp"

namespace troupe {

/// Never (Time::max()) for a wait that is too long to be counted, such as `forever`; at once for a
/// negative one.
constexpr Time deadline_after(Time now, Duration timeout) noexcept {
  if (timeout <= Duration::zero()) return now;
  return timeout >= Time::max() - now ? Time::max() : now + timeout;
}

/// What is left of such a wait: forever when it has no end, nothing when that has passed.
constexpr Duration time_left(Time deadline, Time now) noexcept {
  if (deadline == Time::max()) return Duration::max();
  return deadline > now ? deadline - now : Duration::zero();
}

}  // namespace troupe
