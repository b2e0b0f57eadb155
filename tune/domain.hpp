/// The domain of one parameter and the points of a search space, both without C++ types. Searchers
/// and schedulers work on these.
///
///     Domain lr = log_uniform(1e-5, 1e-1);
///     Random random(seed);
///     double x = sample(lr, random);
///
/// A Point holds one double per parameter of a SearchSpace, in order: the value itself, or for a
/// choice the index of the option. Space<Hp> (space.hpp) turns points into a user's struct.
#pragma once

#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/base/random.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace troupe::tune {

using Point = std::vector<double>;

/// The values that one parameter may take. Make one with the functions below: each checks its
/// arguments and throws InvalidArgument when they describe no valid domain.
struct Domain {
  enum class Kind { real, integer, normal, choice };
  Kind kind = Kind::real;
  double low = 0;    ///< inclusive; -infinity for normal
  double high = 1;   ///< inclusive; +infinity for normal
  double step = 0;   ///< values are low + k * step (normal: k * step); 0 means continuous
  bool log = false;  ///< uniform in log(value)
  double mean = 0;   ///< normal only
  double deviation = 1;
  std::vector<std::string> options;  ///< choice only: how each option is shown
  bool grid = false;                 ///< choice only: cross every option with every random sample

  friend bool operator==(const Domain&, const Domain&) = default;
};

/// Uniform in [low, high].
TROUPE_API Domain uniform(double low, double high);
/// Uniform in log(value); low must be positive. Use it where ratios matter, as for a learning rate.
TROUPE_API Domain log_uniform(double low, double high);
/// The values low, low + step, … up to high, each as likely as the others.
TROUPE_API Domain quantized(double low, double high, double step);
/// log_uniform, rounded to the nearest low + k * step.
TROUPE_API Domain log_quantized(double low, double high, double step);
/// Whole numbers from low to high, both included.
TROUPE_API Domain integers(long long low, long long high);
/// Whole numbers, uniform in log(value).
TROUPE_API Domain log_integers(long long low, long long high);
/// Normal distribution, unbounded; step > 0 rounds to its multiples.
TROUPE_API Domain normal(double mean, double deviation, double step = 0);
/// A choice among options that are shown as these texts. Users of Space<Hp> write choice(a, b, …)
/// of space.hpp instead.
TROUPE_API Domain choices(std::vector<std::string> shown);

/// Draws one value from the domain's distribution.
TROUPE_API double sample(const Domain& domain, Random& random);
/// Returns the value at quantile u in [0, 1). Low-discrepancy sequences supply the u.
TROUPE_API double at_quantile(const Domain& domain, double u);
/// Whether the domain can produce this value. Values of a domain with a step may differ from the
/// step's multiple by rounding error.
TROUPE_API bool contains(const Domain& domain, double value);
/// Returns the nearest value inside the domain, rounded to its step.
TROUPE_API double clamp(const Domain& domain, double value);
/// Returns at most `count` values spread evenly over the domain: evenly in log(value) for a log
/// domain, over quantiles for a normal one. A choice gives all its options, and a stepped domain of
/// at most `count` values gives all of them.
TROUPE_API std::vector<double> grid_values(const Domain& domain, std::size_t count);
/// Formats a value for people: four significant digits, whole numbers without a fraction, options
/// by name.
TROUPE_API std::string show(const Domain& domain, double value);
/// Formats a number with the digits that it needs to be read back unchanged, in any locale.
TROUPE_API std::string show_number(double value);
TROUPE_API std::string show_number(float value);
TROUPE_API std::string show_number(long long value);
/// The domain in one line, for logs and error messages: `log_uniform(1e-05, 0.1)`.
TROUPE_API std::string show(const Domain& domain);

struct Parameter {
  std::string name;
  Domain domain;
};

/// The parameters of an experiment, in the order of a Point's values.
struct TROUPE_API SearchSpace {
  std::vector<Parameter> parameters;

  std::size_t size() const noexcept { return parameters.size(); }
  Point sample(Random& random) const;
  /// Throws InvalidArgument when the point has the wrong length or a value outside its domain; the
  /// message names the parameter, the value and the domain.
  void check(const Point& point) const;
  /// Formats a point for people: `lr 0.0031, momentum 0.92`.
  std::string show(const Point& point) const;
};

}  // namespace troupe::tune
