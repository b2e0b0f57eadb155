/// Small text helpers of the tune room. Numbers are written alike in every locale.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe::tune {

/// Four significant digits, whole numbers whole: 0.0031, 1e-05, 128.
std::string number(double value);

/// As many digits as a double needs to come back unchanged.
std::string exact(double value);

/// Seconds as 7.3s, 2m05s, 1h02m.
std::string duration_text(double seconds);

/// The text with U+FFFD in place of every byte that is no UTF-8.
std::string valid_utf8(std::string_view text);

/// Screen columns of UTF-8 text, each code point taken as one column.
std::size_t columns(std::string_view text);

/// At most `width` columns; longer text ends in an ellipsis. Control characters become '?', so that
/// text from elsewhere cannot steer the terminal; bytes that are no UTF-8 become U+FFFD.
std::string fit(std::string_view text, std::size_t width);

}  // namespace troupe::tune
