/// Learning-rate schedules: plain functions of the step.
///
///     const RateSchedule schedule{.peak = 3e-3f, .warmup = 50, .total = 1000, .floor = 3e-4f};
///     float rate = cosine_rate(schedule, step);
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <cstdint>

namespace troupe::train {

struct RateSchedule {
  float peak = 1e-3f;
  std::int64_t warmup = 0;  ///< steps of linear rise; step 0 already has peak / warmup
  std::int64_t total = 0;   ///< steps after which the floor holds; a decay needs at least 1
  float floor = 0.0f;
};

/// Returns the peak at every step after the warm-up.
TROUPE_API float constant_rate(const RateSchedule& schedule, std::int64_t step);
/// Linear decay to the floor, after the warm-up. Throws InvalidArgument when `total` is below 1.
TROUPE_API float linear_rate(const RateSchedule& schedule, std::int64_t step);
/// Cosine decay to the floor, after the warm-up (Loshchilov and Hutter 2017, eq. 5). Throws like
/// linear_rate().
TROUPE_API float cosine_rate(const RateSchedule& schedule, std::int64_t step);

}  // namespace troupe::train
