/// What a parameter may be, without its C++ type: the vocabulary of searchers and schedulers.
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

/// Made by the functions below, which check the bounds; every maker throws InvalidArgument when
/// they make no sense.
struct Domain {
  enum class Kind { real, integer, normal, choice };
  Kind kind = Kind::real;
  double low = 0;    ///< inclusive; for normal -infinity
  double high = 1;   ///< inclusive; for normal +infinity
  double step = 0;   ///< values are low + k * step (normal: k * step); 0 means continuous
  bool log = false;  ///< uniform in log(value)
  double mean = 0;   ///< normal only
  double deviation = 1;
  std::vector<std::string> options;  ///< choice only: how each option is shown
  bool grid = false;                 ///< a choice of which every option is tried with every sample

  friend bool operator==(const Domain&, const Domain&) = default;
};

/// Uniform in [low, high].
TROUPE_API Domain uniform(double low, double high);
/// Uniform in log(value); low must be positive. For quantities that matter by factor, as a learning
/// rate.
TROUPE_API Domain log_uniform(double low, double high);
/// low, low + step, … up to high.
TROUPE_API Domain quantized(double low, double high, double step);
/// log_uniform rounded to low + k * step.
TROUPE_API Domain log_quantized(double low, double high, double step);
/// Whole numbers from low to high, both included.
TROUPE_API Domain integers(long long low, long long high);
/// Whole numbers, uniform in log(value).
TROUPE_API Domain log_integers(long long low, long long high);
/// Normal distribution, unbounded; step > 0 rounds to its multiples.
TROUPE_API Domain normal(double mean, double deviation, double step = 0);
/// `count` unnamed options. Space<Hp>::with takes choice(a, b, …) of space.hpp instead.
TROUPE_API Domain choices(std::vector<std::string> shown);

/// One value, drawn as the domain says.
TROUPE_API double sample(const Domain& domain, Random& random);
/// The value at quantile u in [0, 1): low-discrepancy sequences feed this.
TROUPE_API double at_quantile(const Domain& domain, double u);
/// Whether the domain can produce this value (quantised ones within rounding).
TROUPE_API bool contains(const Domain& domain, double value);
/// The nearest value inside, rounded to the domain's step.
TROUPE_API double clamp(const Domain& domain, double value);
/// At most `count` values spread evenly (in log where the domain is); all of a choice or of few
/// integers. Normal domains spread over quantiles.
TROUPE_API std::vector<double> grid_values(const Domain& domain, std::size_t count);
/// A value as people read it: four significant digits, whole numbers whole, options by name.
TROUPE_API std::string show(const Domain& domain, double value);
/// A number with all its digits, alike in every locale.
TROUPE_API std::string show_number(double value);
TROUPE_API std::string show_number(float value);
TROUPE_API std::string show_number(long long value);
/// The domain in one line, for logs and error messages: `log_uniform(1e-05, 0.1)`.
TROUPE_API std::string show(const Domain& domain);

struct Parameter {
  std::string name;
  Domain domain;
};

/// The parameters of an experiment, in the order of Point.
struct TROUPE_API SearchSpace {
  std::vector<Parameter> parameters;

  std::size_t size() const noexcept { return parameters.size(); }
  Point sample(Random& random) const;
  /// Throws InvalidArgument that names the parameter, the value and the domain.
  void check(const Point& point) const;
  /// `lr 0.0031, momentum 0.92`.
  std::string show(const Point& point) const;
};

}  // namespace troupe::tune
