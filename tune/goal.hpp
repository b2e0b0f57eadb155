/// Whether a score should grow or shrink.
///
///     tune::optimize<trial>(ctx, space, {.goal = tune::maximize});
#pragma once

#include <cmath>

namespace troupe::tune {

/// There is no default: an option struct that leaves it out does not compile.
class Goal {
 public:
  static constexpr Goal towards(bool larger) noexcept { return Goal(larger); }
  constexpr bool larger() const noexcept { return larger_; }
  /// The score as something to maximise.
  constexpr double gain(double score) const noexcept { return larger_ ? score : -score; }
  /// Strictly better; a NaN is worse than every number.
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
