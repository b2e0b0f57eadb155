#include "troupe/tune/internal/text.hpp"

#include "troupe/tune/internal/json.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>

namespace troupe::tune {

std::string number(double value) {
  if (std::isfinite(value) && value == std::floor(value) && std::abs(value) < 1e7) {
    return fmt::format("{:.0f}", value == 0 ? 0.0 : value);
  }
  return fmt::format("{:.4g}", value);
}

std::string exact(double value) {
  return fmt::format("{}", value);
}

std::string duration_text(double seconds) {
  if (!(seconds >= 60)) return fmt::format("{:.1f}s", seconds);
  const double whole = std::floor(std::min(seconds, 9e15));
  const auto s = static_cast<long long>(whole);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  return fmt::format("{}h{:02}m", s / 3600, s % 3600 / 60);
}

std::string valid_utf8(std::string_view text) {
  const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
  return ascii ? std::string(text) : *Json::parse(Json(text).dump()).value().as_text();
}

std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string fit(std::string_view text, std::size_t width) {
  const std::string valid = valid_utf8(text);
  const bool cut = columns(valid) > width;
  const std::size_t keep = cut ? (width > 0 ? width - 1 : 0) : width;
  std::string out;
  std::size_t used = 0;
  for (std::size_t i = 0; i < valid.size(); ++i) {
    const auto byte = static_cast<unsigned char>(valid[i]);
    if ((byte & 0xC0) != 0x80 && ++used > keep) break;
    if (byte == 0xC2 && static_cast<unsigned char>(valid[i + 1]) < 0xA0) {  // U+0080 to U+009F
      out += '?';
      ++i;
    } else {
      out += byte < 0x20 || byte == 0x7f ? '?' : valid[i];
    }
  }
  return cut && width > 0 ? out + "\u2026" : out;
}

}  // namespace troupe::tune
