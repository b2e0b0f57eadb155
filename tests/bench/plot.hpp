/// Growth, as points, a law and a picture.
///
///     Curve curve{"queued tasks", "tasks", "s", 1.0};
///     curve.points.push_back({1000, 0.001});
///     write(file, to_svg({curve}));
///
/// The law of a curve is the power of x with which y grows: the slope of the straight line through
/// its points on logarithmic paper. That of a time against a number of things is 1 when each costs
/// the same however many there are.
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
  double at_most = 0;  ///< the power that it may grow with
  std::vector<Point> points;
};

/// Precondition: at least two points, all positive, with different x.
double power_of(const Curve& curve);
/// Measurements are not exact: a fifth above the power that it may grow with is no growth.
bool keeps_law(const Curve& curve);

/// One line a curve: its ends and its law.
std::string to_text(const std::vector<Curve>& curves);
/// An array of {"name", "x", "y", "power", "at_most", "points": [[x, y], …]}.
std::string to_json(const std::vector<Curve>& curves);
/// All of them on logarithmic paper, two beside each other.
std::string to_svg(const std::vector<Curve>& curves);

}  // namespace troupe::bench
