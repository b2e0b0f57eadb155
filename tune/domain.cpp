#include "troupe/tune/domain.hpp"

#include "troupe/tune/internal/text.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe::tune {
namespace {

[[noreturn]] void reject(const std::string& what, const std::string& why) {
  throw InvalidArgument(Code::invalid_argument, what + ": " + why);
}

/// Up to this number a double holds every whole number exactly.
constexpr double kMostSteps = 0x1p53;

Domain bounded(const char* name, Domain::Kind kind, double low, double high, double step,
               bool log) {
  Domain domain;
  domain.kind = kind;
  domain.low = low;
  domain.high = high;
  domain.step = step;
  domain.log = log;
  const std::string what =
      std::string("tune::") + name + "(" + number(low) + ", " + number(high) + ")";
  if (!std::isfinite(low) || !std::isfinite(high)) reject(what, "the bounds must be finite");
  if (low > high) reject(what, "the lower bound is above the upper one");
  if (log && low <= 0) reject(what, "a log scale needs a lower bound above 0");
  if (!(step >= 0) || !std::isfinite(step)) reject(what, "the step must be a positive number");
  if (!std::isfinite(high - low)) reject(what, "the range is wider than a double can hold");
  if (step > high - low && high > low) reject(what, "the step is larger than the range");
  if (kind == Domain::Kind::real && step > 0 && (high - low) / step > kMostSteps)
    reject(what, "the step " + number(step) + " is too small: more than 2^53 values");
  if (step > 0) {  // lower `high` to the last multiple, so that no draw falls above it
    const double last = low + std::floor((high - low) / step * (1 + 1e-12)) * step;
    if (last < high - 1e-9 * step) domain.high = last;
  }
  return domain;
}

/// Makes a whole-number domain. Checks the bounds as integers, since a double rounds integers
/// beyond 2^53.
Domain whole(const char* name, long long low, long long high, bool log) {
  constexpr auto kMost = static_cast<long long>(kMostSteps);
  if (std::min(low, high) < -kMost || std::max(low, high) > kMost)
    reject("tune::" + std::string(name) + "(" + std::to_string(low) + ", " + std::to_string(high) +
               ")",
           "whole numbers beyond 2^53 are not told apart");
  return bounded(name, Domain::Kind::integer, static_cast<double>(low), static_cast<double>(high),
                 low == high ? 0 : 1, log);
}

/// Returns the nearest value inside the bounds that is low + k * step.
double rounded(const Domain& d, double value) {
  if (d.step <= 0) return std::clamp(value, d.low, d.high);
  if (d.kind == Domain::Kind::integer) return std::clamp(std::round(value), d.low, d.high);
  if (d.kind == Domain::Kind::normal) {
    const double k = value / d.step;
    return std::abs(k) < kMostSteps ? std::round(k) * d.step : value;
  }
  const double last = std::floor((d.high - d.low) / d.step * (1 + 1e-12));
  const double k = std::clamp(std::round((value - d.low) / d.step), 0.0, last);
  return std::min(d.low + k * d.step, d.high);  // in doubles 3 * 0.1 is above 0.3
}

/// Inverse of the normal distribution function (Acklam's rational approximation, relative error
/// below 1.2e-9).
double normal_quantile(double p) {
  static constexpr double kA[] = {-3.969683028665376e+01, 2.209460984245205e+02,
                                  -2.759285104469687e+02, 1.383577518672690e+02,
                                  -3.066479806614716e+01, 2.506628277459239e+00};
  static constexpr double kB[] = {-5.447609879822406e+01, 1.615858368580409e+02,
                                  -1.556989798598866e+02, 6.680131188771972e+01,
                                  -1.328068155288572e+01};
  static constexpr double kC[] = {-7.784894002430293e-03, -3.223964580411365e-01,
                                  -2.400758277161838e+00, -2.549732539343734e+00,
                                  4.374664141464968e+00,  2.938163982698783e+00};
  static constexpr double kD[] = {7.784695709041462e-03, 3.224671290700398e-01,
                                  2.445134137142996e+00, 3.754408661907416e+00};
  p = std::clamp(p, 1e-300, 1 - 1e-16);
  if (p < 0.02425 || p > 1 - 0.02425) {
    const double q = std::sqrt(-2 * std::log(std::min(p, 1 - p)));
    const double x = (((((kC[0] * q + kC[1]) * q + kC[2]) * q + kC[3]) * q + kC[4]) * q + kC[5]) /
                     ((((kD[0] * q + kD[1]) * q + kD[2]) * q + kD[3]) * q + 1);
    return p < 0.5 ? x : -x;
  }
  const double q = p - 0.5;
  const double r = q * q;
  return (((((kA[0] * r + kA[1]) * r + kA[2]) * r + kA[3]) * r + kA[4]) * r + kA[5]) * q /
         (((((kB[0] * r + kB[1]) * r + kB[2]) * r + kB[3]) * r + kB[4]) * r + 1);
}

std::size_t distinct_values(const Domain& d) {
  if (d.kind == Domain::Kind::choice) return d.options.size();
  if (d.step <= 0 || d.kind == Domain::Kind::normal) return std::numeric_limits<std::size_t>::max();
  return static_cast<std::size_t>(std::floor((d.high - d.low) / d.step * (1 + 1e-12))) + 1;
}

}  // namespace

Domain uniform(double low, double high) {
  return bounded("uniform", Domain::Kind::real, low, high, 0, false);
}
Domain log_uniform(double low, double high) {
  return bounded("log_uniform", Domain::Kind::real, low, high, 0, true);
}
Domain quantized(double low, double high, double step) {
  if (!(step > 0)) reject("tune::quantized", "the step must be above 0");
  return bounded("quantized", Domain::Kind::real, low, high, step, false);
}
Domain log_quantized(double low, double high, double step) {
  if (!(step > 0)) reject("tune::log_quantized", "the step must be above 0");
  return bounded("log_quantized", Domain::Kind::real, low, high, step, true);
}
Domain integers(long long low, long long high) {
  return whole("integers", low, high, false);
}
Domain log_integers(long long low, long long high) {
  return whole("log_integers", low, high, true);
}
Domain normal(double mean, double deviation, double step) {
  if (!std::isfinite(mean) || !std::isfinite(deviation) || deviation <= 0) {
    reject("tune::normal(" + number(mean) + ", " + number(deviation) + ")",
           "the mean must be finite and the deviation above 0");
  }
  if (!std::isfinite(std::abs(mean) + 40 * deviation)) {
    reject("tune::normal(" + number(mean) + ", " + number(deviation) + ")",
           "its values are larger than a double can hold");
  }
  if (!(step >= 0) || !std::isfinite(step))
    reject("tune::normal", "the step must be a number that is not negative");
  if (step > 0 && (std::abs(mean) + 40 * deviation) / step > kMostSteps)
    reject("tune::normal", "the step " + number(step) + " is too small: more than 2^53 values");
  Domain domain;
  domain.kind = Domain::Kind::normal;
  domain.low = -std::numeric_limits<double>::infinity();
  domain.high = std::numeric_limits<double>::infinity();
  domain.mean = mean;
  domain.deviation = deviation;
  domain.step = step;
  return domain;
}
Domain choices(std::vector<std::string> shown) {
  if (shown.empty()) reject("tune::choice()", "it needs at least one option");
  Domain domain;
  domain.kind = Domain::Kind::choice;
  domain.low = 0;
  domain.high = static_cast<double>(shown.size() - 1);
  domain.step = 1;
  domain.options = std::move(shown);
  return domain;
}

double sample(const Domain& d, Random& random) {
  if (d.kind == Domain::Kind::choice) return static_cast<double>(random.below(d.options.size()));
  return at_quantile(d, random.uniform());
}

double at_quantile(const Domain& d, double u) {
  if (d.kind == Domain::Kind::choice) {
    const auto n = static_cast<double>(d.options.size());
    return std::min(std::floor(u * n), n - 1);
  }
  if (d.kind == Domain::Kind::normal) return rounded(d, d.mean + d.deviation * normal_quantile(u));
  // Discrete domains are widened by half a step, so that the end points are as likely as the rest.
  const double half = d.step / 2;
  const double low = d.low - half;
  const double high = d.high + half;
  if (!d.log) return rounded(d, low + u * (high - low));
  // Half a step below a small bound may be 0 or less, which has no logarithm.
  const double floor_value = low > 0 ? low : d.low;
  return rounded(d, std::exp(std::log(floor_value) + u * (std::log(high) - std::log(floor_value))));
}

bool contains(const Domain& d, double value) {
  if (!std::isfinite(value)) return false;
  if (d.step <= 0) return value >= d.low && value <= d.high;
  if (d.kind == Domain::Kind::integer || d.kind == Domain::Kind::choice)
    return rounded(d, value) == value;
  // A value is low + k * step, computed in doubles. Its error is a few units in the last place of
  // the largest term.
  const double largest = d.kind == Domain::Kind::normal
                             ? std::abs(value)
                             : std::max(std::abs(d.low), std::abs(d.high));
  const double slack = 1e-9 * d.step + std::min(1e-15 * largest, d.step / 4);
  return std::abs(rounded(d, value) - value) <= slack;
}

double clamp(const Domain& d, double value) {
  if (std::isnan(value)) value = d.kind == Domain::Kind::normal ? d.mean : d.low;
  return rounded(d, value);
}

std::vector<double> grid_values(const Domain& d, std::size_t count) {
  std::vector<double> values;
  if (distinct_values(d) <= count || d.kind == Domain::Kind::choice) {
    for (std::size_t i = 0; i < distinct_values(d); ++i) {
      values.push_back(std::min(d.low + static_cast<double>(i) * d.step, d.high));
    }
    return values;
  }
  for (std::size_t i = 0; i < count; ++i) {
    double value = 0;
    const double at = count == 1 ? 0.5 : static_cast<double>(i) / static_cast<double>(count - 1);
    if (d.kind == Domain::Kind::normal) {
      value = at_quantile(d, (static_cast<double>(i) + 0.5) / static_cast<double>(count));
    } else if (d.log) {
      value = clamp(d, std::exp(std::log(d.low) + at * (std::log(d.high) - std::log(d.low))));
    } else {
      value = clamp(d, d.low + at * (d.high - d.low));
    }
    if (values.empty() || value != values.back()) values.push_back(value);
  }
  return values;
}

std::string show(const Domain& d, double value) {
  if (d.kind == Domain::Kind::choice) {
    const bool known = value >= 0 && value < static_cast<double>(d.options.size());
    return known ? d.options[static_cast<std::size_t>(value)] : number(value);
  }
  return number(value);
}

std::string show_number(double value) {
  return exact(value);
}
std::string show_number(float value) {
  return fmt::format("{}", value);
}
std::string show_number(long long value) {
  return std::to_string(value);
}

std::string show(const Domain& d) {
  if (d.kind == Domain::Kind::choice) {
    std::string text = d.grid ? "grid(" : "choice(";
    for (std::size_t i = 0; i < d.options.size(); ++i) text += (i ? ", " : "") + d.options[i];
    return text + ")";
  }
  if (d.kind == Domain::Kind::normal) {
    return "normal(" + number(d.mean) + ", " + number(d.deviation) +
           (d.step > 0 ? ", step " + number(d.step) : "") + ")";
  }
  const bool whole = d.kind == Domain::Kind::integer;
  std::string text = d.log ? "log_" : "";
  text += whole ? "integers(" : d.step > 0 ? "quantized(" : "uniform(";
  text += number(d.low) + ", " + number(d.high);
  if (!whole && d.step > 0) text += ", " + number(d.step);
  return text + ")";
}

Point SearchSpace::sample(Random& random) const {
  Point point;
  point.reserve(size());
  for (const Parameter& p : parameters) point.push_back(tune::sample(p.domain, random));
  return point;
}

void SearchSpace::check(const Point& point) const {
  if (point.size() != size()) {
    reject("a point of " + std::to_string(point.size()) + " values",
           "the space has " + std::to_string(size()) + " parameters");
  }
  for (std::size_t i = 0; i < size(); ++i) {
    if (contains(parameters[i].domain, point[i])) continue;
    const Domain& domain = parameters[i].domain;
    const bool choice = domain.kind == Domain::Kind::choice;
    reject(parameters[i].name + " = " + (choice ? tune::show(domain, point[i]) : exact(point[i])),
           "outside " + tune::show(domain));
  }
}

std::string SearchSpace::show(const Point& point) const {
  std::string text;
  for (std::size_t i = 0; i < size() && i < point.size(); ++i) {
    text += (i ? ", " : "") + parameters[i].name + " " + tune::show(parameters[i].domain, point[i]);
  }
  return text;
}

}  // namespace troupe::tune
