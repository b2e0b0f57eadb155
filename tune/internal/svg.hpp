/// Drawing: escaped text, axes with readable ticks, colours for both themes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace troupe::tune {

/// For text and attribute values of HTML and SVG; control characters become spaces.
std::string escape(std::string_view text);

/// One decimal place, for coordinates.
std::string coordinate(double value);

/// At most about `count` round values inside [low, high]; powers of ten (with 2 and 5 when few) on
/// a log scale.
std::vector<double> ticks(double low, double high, int count, bool log);

/// From data to a pixel span.
struct Axis {
  double low = 0;
  double high = 1;
  bool log = false;
  double from = 0;  ///< pixel of low
  double to = 1;    ///< pixel of high
  double at(double value) const;
};

/// Twelve colours that are told apart on white and on black; further ones repeat.
const char* colour(std::size_t index);

/// <svg …> with a title for screen readers and the styles that the pictures share.
std::string svg_open(double width, double height, std::string_view title);

/// <text>; anchor is start, middle or end.
std::string svg_text(double x, double y, std::string_view text, std::string_view anchor = "start",
                     std::string_view more = "");

}  // namespace troupe::tune
