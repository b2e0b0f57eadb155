#include "troupe/tune/internal/settings.hpp"

#include "troupe/tune/internal/experiment_core.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe::tune {
namespace {

double micros_of(Duration duration) {
  const auto micros = std::chrono::ceil<std::chrono::microseconds>(duration).count();
  return static_cast<double>(std::min<std::int64_t>(micros, kNever));
}

Duration duration_of(double micros) {
  const double most = static_cast<double>(kNever);
  return std::chrono::microseconds(static_cast<std::int64_t>(std::clamp(micros, 0.0, most)));
}

template <class T>
T whole_of(double value) {
  constexpr auto kLimit = static_cast<double>(std::int64_t{1} << 53);
  return static_cast<T>(
      std::clamp(value, std::max(-kLimit, static_cast<double>(std::numeric_limits<T>::min())),
                 std::min(kLimit, static_cast<double>(std::numeric_limits<T>::max()))));
}

}  // namespace

Settings settings_of(const ExperimentOptions& o) {
  return {{"trials", o.trials},
          {"concurrent", o.concurrent},
          {"max_failures", o.max_failures},
          {"fail_fast", o.fail_fast ? 1 : 0},
          {"max_steps", static_cast<double>(o.max_steps)},
          {"target", o.target.value_or(std::nan(""))},
          {"time_limit", micros_of(o.time_limit)},
          {"stop_grace", micros_of(o.stop_grace)},
          {"save_every", static_cast<double>(o.save_every)},
          {"save_at_end", o.save_at_end ? 1 : 0}};
}

Settings changed(const Settings& from, const Settings& to) {
  Settings differ;
  for (const auto& [name, value] : to) {
    const auto found = from.find(name);
    const bool same = found != from.end() &&
                      (found->second == value || (std::isnan(found->second) && std::isnan(value)));
    if (!same) differ[name] = value;
  }
  return differ;
}

void adopt(const Settings& settings, ExperimentOptions& o) {
  for (const auto& [name, value] : settings) {
    if (name == "target") o.target = std::isnan(value) ? std::nullopt : std::optional(value);
    if (std::isnan(value)) continue;
    if (name == "trials") o.trials = std::max(1, whole_of<int>(value));
    if (name == "concurrent") o.concurrent = std::max(0, whole_of<int>(value));
    if (name == "max_failures") o.max_failures = std::max(-1, whole_of<int>(value));
    if (name == "fail_fast") o.fail_fast = value != 0;
    if (name == "max_steps") o.max_steps = std::max(0L, whole_of<long>(value));
    if (name == "time_limit") o.time_limit = duration_of(value);
    if (name == "stop_grace") o.stop_grace = duration_of(value);
    if (name == "save_every") o.save_every = std::max(0L, whole_of<long>(value));
    if (name == "save_at_end") o.save_at_end = value != 0;
  }
}

}  // namespace troupe::tune
