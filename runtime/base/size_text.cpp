#include "troupe/runtime/base/size_text.hpp"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>

#include "troupe/runtime/base/error.hpp"

namespace troupe {

std::optional<Bytes> parse_size(std::string_view text) {
  static constexpr double kMost = 1e15;
  static constexpr std::pair<std::string_view, int> kUnits[] = {
      {"", 0},     {"B", 0},  {"K", 10},   {"KiB", 10}, {"M", 20},
      {"MiB", 20}, {"G", 30}, {"GiB", 30}, {"T", 40},   {"TiB", 40}};
  double value = 0;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto parsed = std::from_chars(begin, end, value);
  if (parsed.ec != std::errc{} || !(value >= 0)) return std::nullopt;
  const std::string_view unit(parsed.ptr, static_cast<std::size_t>(end - parsed.ptr));
  for (const auto& [name, shift] : kUnits) {
    if (unit != name) continue;
    const double bytes = value * static_cast<double>(std::uint64_t{1} << shift);
    if (bytes > kMost) return std::nullopt;
    return Bytes{static_cast<std::uint64_t>(bytes)};
  }
  return std::nullopt;
}

std::optional<double> parse_amount(std::string_view text) {
  double value = 0;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto parsed = std::from_chars(begin, end, value);
  if (parsed.ec != std::errc{} || parsed.ptr != end || !(value >= 0) || value > 1e6)
    return std::nullopt;
  return value;
}

std::optional<Duration> parse_duration(std::string_view text) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}};
  double value = 0;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto parsed = std::from_chars(begin, end, value);
  if (parsed.ec != std::errc{} || !(value >= 0 && value <= 1e9)) return std::nullopt;
  const std::string_view unit(parsed.ptr, static_cast<std::size_t>(end - parsed.ptr));
  for (const auto& [name, nanoseconds] : kUnits) {
    if (unit != name) continue;
    if (value * nanoseconds > 9e18) return std::nullopt;
    return Duration(std::llround(value * nanoseconds));
  }
  return std::nullopt;
}

std::optional<std::pair<std::string_view, std::string_view>> parse_pair(std::string_view text) {
  const auto equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0 || equals + 1 == text.size())
    return std::nullopt;
  return std::pair(text.substr(0, equals), text.substr(equals + 1));
}

}  // namespace troupe
