/// Growth curves: points, the power law through them, and a picture.
///
///     Curve curve{"queued tasks", "tasks", "s", 1.0};
///     curve.points.push_back({1000, 0.001});
///     write(file, to_svg({curve}));
///
/// The law of a curve is the power of x with which y grows. It is the slope of the straight line
/// through the points on logarithmic paper. A time that grows with the number of things has power
/// 1 when each thing costs the same at every number.
#pragma once

#include <string>
#include <vector>

namespace troupe::bench {

struct Point {
  double x = 0;
  double y = 0;
};

struct Curve {
  std::string name;
  std::string x_label;
  std::string y_label;
  double at_most = 0;  ///< the largest power that the curve may have
  std::vector<Point> points;
};

/// Returns the power. Precondition: at least two points, all positive, with different x.
double power_of(const Curve& curve);
/// Returns whether the power is at most a fifth above `at_most`. The fifth allows for errors of
/// measurement.
bool keeps_law(const Curve& curve);

/// One line per curve: its ends and its law.
std::string to_text(const std::vector<Curve>& curves);
/// An array of {"name", "x", "y", "power", "at_most", "points": [[x, y], …]}.
std::string to_json(const std::vector<Curve>& curves);
/// All curves on logarithmic paper, two side by side.
std::string to_svg(const std::vector<Curve>& curves);

}  // namespace troupe::bench
