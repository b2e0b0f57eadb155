/// Deadlines of waits whose timeout a user gives.
///
///     const Time deadline = deadline_after(steady_now(), options.timeout);
///     const Duration left = time_left(deadline, steady_now());
#pragma once

#include "troupe/runtime/base/clock.hpp"

namespace troupe {

/// Returns the deadline: Time::max() for a timeout too long to add, such as `forever`; `now` for a
/// negative one.
constexpr Time deadline_after(Time now, Duration timeout) noexcept {
  if (timeout <= Duration::zero()) return now;
  return timeout >= Time::max() - now ? Time::max() : now + timeout;
}

/// Returns the time left until the deadline: Duration::max() when it is Time::max(), zero when it
/// has passed.
constexpr Duration time_left(Time deadline, Time now) noexcept {
  if (deadline == Time::max()) return Duration::max();
  return deadline > now ? deadline - now : Duration::zero();
}

}  // namespace troupe
