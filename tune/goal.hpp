/// Goal: whether an experiment maximises or minimises its score.
///
///     tune::optimize<trial>(ctx, space, {.goal = tune::maximize});
#pragma once

#include <cmath>

namespace troupe::tune {

/// The direction of a score. It has no default constructor, so that options without a goal do not
/// compile.
class Goal {
 public:
  static constexpr Goal towards(bool larger) noexcept { return Goal(larger); }
  constexpr bool larger() const noexcept { return larger_; }
  /// Returns the score, negated when it is to be minimised: a larger gain is always better.
  constexpr double gain(double score) const noexcept { return larger_ ? score : -score; }
  /// Whether a is strictly better than b. NaN is worse than every number.
  bool better(double a, double b) const noexcept {
    if (std::isnan(a)) return false;
    return std::isnan(b) || gain(a) > gain(b);
  }
  friend constexpr bool operator==(Goal, Goal) = default;

 private:
  explicit constexpr Goal(bool larger) noexcept : larger_(larger) {}
  bool larger_;
};

inline constexpr Goal maximize = Goal::towards(true);
inline constexpr Goal minimize = Goal::towards(false);

}  // namespace troupe::tune
