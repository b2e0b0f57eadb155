/// SVG helpers of the report views: escaped text, axes with round ticks, colours for light and dark
/// themes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace troupe::tune {

/// Escapes text for contents and attribute values of HTML and SVG; control characters become
/// spaces.
std::string escape(std::string_view text);

/// Formats a coordinate with one decimal place.
std::string coordinate(double value);

/// Returns about `count` round values inside [low, high]. On a log scale these are powers of ten,
/// and 2 and 5 times them when the range is short.
std::vector<double> ticks(double low, double high, int count, bool log);

/// Maps data values to pixels, linearly or by logarithm.
struct Axis {
  double low = 0;
  double high = 1;
  bool log = false;
  double from = 0;  ///< pixel of low
  double to = 1;    ///< pixel of high
  double at(double value) const;
};

/// Returns one of twelve colours that differ visibly on white and on black; larger indices repeat
/// them.
const char* colour(std::size_t index);

/// Returns the opening <svg …> with a title for screen readers and the styles that all pictures
/// share.
std::string svg_open(double width, double height, std::string_view title);

/// Returns a <text> element; `anchor` is start, middle or end, `more` holds further attributes.
std::string svg_text(double x, double y, std::string_view text, std::string_view anchor = "start",
                     std::string_view more = "");

}  // namespace troupe::tune
