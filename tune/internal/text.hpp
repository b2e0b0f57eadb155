/// Small text helpers of the tune room. Numbers look the same in every locale.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe::tune {

/// Formats a number with four significant digits, whole numbers without a fraction: 0.0031, 1e-05,
/// 128.
std::string number(double value);

/// Formats a number with the digits that it needs to be read back unchanged.
std::string exact(double value);

/// Formats seconds as 7.3s, 2m05s or 1h02m.
std::string duration_text(double seconds);

/// Returns the text with U+FFFD in place of bytes that are not UTF-8.
std::string valid_utf8(std::string_view text);

/// Counts the screen columns of UTF-8 text, one for each code point.
std::size_t columns(std::string_view text);

/// Cuts text to at most `width` columns; longer text ends in an ellipsis. Control characters become
/// '?', so that text from outside cannot steer the terminal (TU-7). Bytes that are not UTF-8 become
/// U+FFFD.
std::string fit(std::string_view text, std::size_t width);

}  // namespace troupe::tune
