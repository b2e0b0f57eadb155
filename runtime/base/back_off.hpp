/// The pause before a failed action is tried again: it doubles each time, up to a bound.
///
///     wait(back_off(failures, 100ms, 10s));     // 100 ms, 200 ms, 400 ms, …, 10 s
#pragma once

#include "troupe/runtime/base/units.hpp"

#include <string>

namespace troupe {

/// Returns the pause after `failures` failures in a row: 0 gives zero, 1 gives `first`.
/// Precondition: neither bound is negative.
constexpr Duration back_off(unsigned failures, Duration first, Duration longest) noexcept {
  if (failures == 0) return Duration::zero();
  for (; failures > 1 && first > Duration::zero() && first < longest; --failures)
    first = first > longest / 2 ? longest : 2 * first;
  return first < longest ? first : longest;
}

/// Formats a pause as "100 ms" or "1.6 s", independent of the locale.
inline std::string pause_text(Duration pause) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(pause).count();
  if (ms < 1000) return std::to_string(ms > 0 ? ms : 0) + " ms";
  if (ms >= 10'000) return std::to_string(ms / 1000) + " s";
  return std::to_string(ms / 1000) + "." + std::to_string(ms / 100 % 10) + " s";
}

}  // namespace troupe
