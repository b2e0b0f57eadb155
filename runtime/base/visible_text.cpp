#include "troupe/runtime/base/visible_text.hpp"

#include <cstdint>

namespace troupe {
namespace {

struct Point {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  ///< 0: the first byte begins no valid sequence
};

Point point_at(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1};
  const std::size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return {};
  std::uint32_t code = first & (0xffu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0u) != 0x80u) return {};
    code = (code << 6) | (byte(i) & 0x3fu);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < kLeast[bytes] || code > 0x10ffff || surrogate) return {};
  return {code, bytes};
}

bool is_visible(std::uint32_t code) noexcept {
  struct Range {
    std::uint32_t first, last;
  };
  // Zero-width and directional marks, separators, tags, and the byte order mark are among these.
  constexpr Range kHidden[] = {{0, 0x1f},        {0x7f, 0x9f},       {0xad, 0xad},
                               {0x61c, 0x61c},   {0x180e, 0x180e},   {0x200b, 0x200f},
                               {0x2028, 0x202e}, {0x2060, 0x206f},   {0xfeff, 0xfeff},
                               {0xfff9, 0xfffb}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff}};
  for (const Range& range : kHidden)
    if (code >= range.first && code <= range.last) return false;
  return true;
}

}  // namespace

std::string visible_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Point point = point_at(text);
    if (point.bytes == 0 || !is_visible(point.code))
      out += '?';
    else
      out += text.substr(0, point.bytes);
    text.remove_prefix(point.bytes == 0 ? 1 : point.bytes);
  }
  return out;
}

std::string visible_text(std::string_view text, std::size_t columns) {
  constexpr std::string_view kCut = "...";
  // Four bytes a code point: what lies behind them cannot be shown.
  const bool longer = text.size() / 4 > columns;
  std::string out = visible_text(longer ? text.substr(0, 4 * columns + 4) : text);
  if (!longer && columns_of(out) <= columns) return out;
  std::size_t at = 0;
  const std::size_t keep = columns > kCut.size() ? columns - kCut.size() : 0;
  for (std::size_t i = 0; i < keep && at < out.size(); ++i)
    at += point_at(std::string_view(out).substr(at, 4)).bytes;
  out.resize(at);
  out += kCut.substr(0, columns);
  return out;
}

std::string escaped_text(std::string_view text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  while (!text.empty()) {
    const Point point = point_at(text);
    const std::string_view one = text.substr(0, point.bytes == 0 ? 1 : point.bytes);
    text.remove_prefix(one.size());
    if (one == "\t" || (point.bytes != 0 && is_visible(point.code))) {
      out += one;
      continue;
    }
    for (const char c : one) {
      const auto byte = static_cast<unsigned char>(c);
      out.append("\\x").append(1, kDigits[byte >> 4]).append(1, kDigits[byte & 15]);
    }
  }
  return out;
}

std::size_t columns_of(std::string_view visible) noexcept {
  std::size_t columns = 0;
  for (const char c : visible)
    if ((static_cast<unsigned char>(c) & 0xc0u) != 0x80u) ++columns;
  return columns;
}

}  // namespace troupe
