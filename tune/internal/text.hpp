/// Small text helpers of the tune room.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace troupe::tune {

/// Four significant digits, whole numbers whole: 0.0031, 1e-05, 128.
inline std::string number(double value) {
  char text[32];
  if (std::isfinite(value) && value == std::floor(value) && std::abs(value) < 1e7) {
    std::snprintf(text, sizeof text, "%.0f", value == 0 ? 0.0 : value);
  } else {
    std::snprintf(text, sizeof text, "%.4g", value);
  }
  return text;
}

/// As many digits as a double needs to come back unchanged.
inline std::string exact(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

/// Seconds as 7.3s, 2m05s, 1h02m.
inline std::string duration_text(double seconds) {
  char text[32];
  if (seconds < 60) {
    std::snprintf(text, sizeof text, "%.1fs", seconds);
  } else if (seconds < 3600) {
    std::snprintf(text, sizeof text, "%dm%02ds", static_cast<int>(seconds) / 60,
                  static_cast<int>(seconds) % 60);
  } else {
    std::snprintf(text, sizeof text, "%dh%02dm", static_cast<int>(seconds) / 3600,
                  static_cast<int>(seconds) % 3600 / 60);
  }
  return text;
}

/// Screen columns of UTF-8 text, each code point taken as one column.
inline std::size_t columns(std::string_view text) {
  std::size_t n = 0;
  for (const char c : text) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return n;
}

/// At most `width` columns; longer text ends in an ellipsis. Control characters become '?', so that
/// text from elsewhere cannot steer the terminal.
inline std::string fit(std::string_view text, std::size_t width) {
  const bool cut = columns(text) > width;
  const std::size_t keep = cut ? (width > 0 ? width - 1 : 0) : width;
  std::string out;
  std::size_t used = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xC0) != 0x80 && ++used > keep) break;
    out += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  return cut && width > 0 ? out + "\u2026" : out;
}

}  // namespace troupe::tune
