#include "plot.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace troupe::bench {
namespace {

constexpr double kSlack = 0.2;

template <class... Values>
std::string text(const char* format, Values... values) {
  char line[512];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

/// A logarithmic axis whose ends are powers of ten.
struct Axis {
  double low = 0, high = 1;  ///< exponents
  double from = 0, to = 0;   ///< pixels
  double at(double value) const {
    return from + (to - from) * (std::log10(value) - low) / (high - low);
  }
};

Axis axis_of(const Curve& curve, double Point::* member, double from, double to) {
  const auto [least, most] =
      std::minmax_element(curve.points.begin(), curve.points.end(),
                          [&](const Point& a, const Point& b) { return a.*member < b.*member; });
  Axis axis{std::floor(std::log10((*least).*member)), std::ceil(std::log10((*most).*member)), from,
            to};
  if (axis.high <= axis.low) axis.high = axis.low + 1;
  return axis;
}

constexpr double kWidth = 420, kHeight = 260;
constexpr double kLeft = 70, kRight = 20, kTop = 34, kBottom = 44;

std::string picture(const Curve& curve, double left, double top) {
  const Axis x = axis_of(curve, &Point::x, left + kLeft, left + kWidth - kRight);
  const Axis y = axis_of(curve, &Point::y, top + kHeight - kBottom, top + kTop);
  std::string svg = text("<text x='%g' y='%g' font-weight='bold'>%s ~ x^%.2f</text>\n",
                         left + kLeft, top + 20, curve.name.c_str(), power_of(curve));
  for (double power = x.low; power <= x.high; ++power)
    svg += text(
        "<path d='M%g %gV%g' stroke='#ddd'/><text x='%g' y='%g' text-anchor='middle'>%g</text>\n",
        x.at(std::pow(10, power)), y.from, y.to, x.at(std::pow(10, power)), y.from + 14,
        std::pow(10, power));
  for (double power = y.low; power <= y.high; ++power)
    svg +=
        text("<path d='M%g %gH%g' stroke='#ddd'/><text x='%g' y='%g' text-anchor='end'>%g</text>\n",
             x.from, y.at(std::pow(10, power)), x.to, x.from - 6, y.at(std::pow(10, power)) + 4,
             std::pow(10, power));
  svg += text("<text x='%g' y='%g' text-anchor='middle'>%s</text>\n", (x.from + x.to) / 2,
              y.from + 32, curve.x_label.c_str());
  svg += text("<text transform='translate(%g %g) rotate(-90)' text-anchor='middle'>%s</text>\n",
              left + 14, (y.from + y.to) / 2, curve.y_label.c_str());
  std::string path;
  for (const Point& point : curve.points) {
    path += text("%s%g %g", path.empty() ? "M" : "L", x.at(point.x), y.at(point.y));
    svg += text("<circle cx='%g' cy='%g' r='3' fill='#036'/>\n", x.at(point.x), y.at(point.y));
  }
  return svg + "<path d='" + path + "' fill='none' stroke='#036'/>\n";
}

}  // namespace

double power_of(const Curve& curve) {
  const double n = static_cast<double>(curve.points.size());
  double sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (const Point& point : curve.points) {
    const double x = std::log(point.x), y = std::log(point.y);
    sx += x;
    sy += y;
    sxx += x * x;
    sxy += x * y;
  }
  return (n * sxy - sx * sy) / (n * sxx - sx * sx);
}

bool keeps_law(const Curve& curve) {
  return power_of(curve) <= curve.at_most + kSlack;
}

std::string to_text(const std::vector<Curve>& curves) {
  std::string all = text("%-34s %-22s %-26s %10s %8s\n", "curve", "first point", "last point",
                         "grows as", "may as");
  for (const Curve& curve : curves) {
    const Point first = curve.points.front(), last = curve.points.back();
    const std::string unit = curve.y_label;
    all += text("%-34s %-22s %-26s %10s %8s  %s\n", curve.name.c_str(),
                text("%.3g %s at %g", first.y, unit.c_str(), first.x).c_str(),
                text("%.3g %s at %g", last.y, unit.c_str(), last.x).c_str(),
                text("x^%.2f", power_of(curve)).c_str(), text("x^%g", curve.at_most).c_str(),
                keeps_law(curve) ? "yes" : "NO");
  }
  return all;
}

std::string to_json(const std::vector<Curve>& curves) {
  std::string all = "[";
  for (const Curve& curve : curves) {
    all += text(
        "%s\n {\"name\": \"%s\", \"x\": \"%s\", \"y\": \"%s\", \"power\": %.3g, \"at_most\": "
        "%g, \"points\": [",
        all.size() == 1 ? "" : ",", curve.name.c_str(), curve.x_label.c_str(),
        curve.y_label.c_str(), power_of(curve), curve.at_most);
    for (std::size_t i = 0; i < curve.points.size(); ++i)
      all += text("%s[%.6g, %.6g]", i == 0 ? "" : ", ", curve.points[i].x, curve.points[i].y);
    all += "]}";
  }
  return all + "\n]\n";
}

std::string to_svg(const std::vector<Curve>& curves) {
  const double rows = std::ceil(static_cast<double>(curves.size()) / 2);
  std::string svg = text(
      "<svg xmlns='http://www.w3.org/2000/svg' width='%g' height='%g' font-family='sans-serif' "
      "font-size='11'>\n<rect width='100%%' height='100%%' fill='white'/>\n",
      2 * kWidth, rows * kHeight);
  for (std::size_t i = 0; i < curves.size(); ++i) {
    const std::size_t row = i / 2, column = i % 2;
    svg += picture(curves[i], kWidth * static_cast<double>(column),
                   kHeight * static_cast<double>(row));
  }
  return svg + "</svg>\n";
}

}  // namespace troupe::bench
