/// Time for state machines: cores take a `Time` as an argument and never read a clock themselves.
///
///     core.on_tick(steady_now());           // a shell
///     core.on_tick(Time{} + 3s);            // a test
#pragma once

#include "troupe/runtime/base/units.hpp"

#include <ctime>

namespace troupe {

/// Tag of the monotonic time line. It has no `now()`: use steady_now() in shells, virtual time in
/// the simulator.
struct Monotonic {
  using rep = Duration::rep;
  using period = Duration::period;
  using duration = Duration;
  using time_point = std::chrono::time_point<Monotonic>;
  static constexpr bool is_steady = true;
};

/// A point on the monotonic clock; comparable only within one machine and boot.
using Time = Monotonic::time_point;

/// Reads CLOCK_MONOTONIC, without a system call.
inline Time steady_now() noexcept {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return Time(std::chrono::seconds(t.tv_sec) + Duration(t.tv_nsec));
}

}  // namespace troupe
