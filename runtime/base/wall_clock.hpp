/// The time of day, for people and for logs. State machines and deadlines use clock.hpp.
#pragma once

#include <cstdint>
#include <ctime>

namespace troupe {

/// Reads CLOCK_REALTIME: nanoseconds since 1970. It may run backwards.
inline std::int64_t unix_nanoseconds() noexcept {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

}  // namespace troupe
