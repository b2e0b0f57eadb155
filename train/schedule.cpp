#include "troupe/train/schedule.hpp"

#include "troupe/train/internal/reject.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace troupe::train {
namespace {

bool warming(const RateSchedule& s, std::int64_t step) {
  return step < s.warmup;
}

float warm(const RateSchedule& s, std::int64_t step) {
  return s.peak * static_cast<float>(static_cast<double>(step + 1) / static_cast<double>(s.warmup));
}

/// Throws for a schedule that decays and has no length: it would give the floor at every step.
void require_total(const RateSchedule& s, const char* rate) {
  if (s.total < 1)
    internal::reject(std::string(rate) + ": RateSchedule.total is " + std::to_string(s.total) +
                     ": set it to the number of steps of the run");
}

/// Returns how far the step is from the end of the warm-up (0) to the last step (1).
double progress(const RateSchedule& s, std::int64_t step) {
  if (s.total <= s.warmup) return 1.0;
  const double part =
      static_cast<double>(step - s.warmup) / static_cast<double>(s.total - s.warmup);
  return std::clamp(part, 0.0, 1.0);
}

}  // namespace

float constant_rate(const RateSchedule& s, std::int64_t step) {
  return warming(s, step) ? warm(s, step) : s.peak;
}

float linear_rate(const RateSchedule& s, std::int64_t step) {
  require_total(s, "linear_rate()");
  if (warming(s, step)) return warm(s, step);
  return s.floor + (s.peak - s.floor) * static_cast<float>(1.0 - progress(s, step));
}

float cosine_rate(const RateSchedule& s, std::int64_t step) {
  require_total(s, "cosine_rate()");
  if (warming(s, step)) return warm(s, step);
  constexpr double kPi = 3.141592653589793;
  return s.floor +
         (s.peak - s.floor) * static_cast<float>(0.5 * (1.0 + std::cos(kPi * progress(s, step))));
}

}  // namespace troupe::train
