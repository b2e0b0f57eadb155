#include "troupe/tune/internal/svg.hpp"

#include "troupe/tune/internal/text.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cmath>

namespace troupe::tune {

std::string escape(std::string_view text) {
  std::string out;
  std::string valid = valid_utf8(text);
  // XML does not allow U+FFFE and U+FFFF, which are valid UTF-8.
  for (const std::string_view none : {"\xef\xbf\xbe", "\xef\xbf\xbf"}) {
    for (std::size_t at; (at = valid.find(none)) != std::string::npos;)
      valid.replace(at, none.size(), "\xef\xbf\xbd");
  }
  for (const char c : valid) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    }
  }
  return out;
}

std::string coordinate(double value) {
  // A point far outside the picture is clamped to one nearer to it, which is still outside.
  return fmt::format("{:.1f}", std::isfinite(value) ? std::clamp(value, -1e6, 1e6) : 0.0);
}

namespace {

constexpr int kMostTicks = 64;

/// Returns ticks of a log scale: 1, 2 and 5 times powers of ten if the range is short, else powers
/// of ten, at a stride that keeps them few.
std::vector<double> log_ticks(double low, double high) {
  const double first = std::floor(std::log10(low));
  const double last = std::ceil(std::log10(high));
  const bool fine = last - first < 4 && std::log10(high) - std::log10(low) < 2.5;
  const double stride = std::max(1.0, std::ceil((last - first) / 12));
  std::vector<double> out;
  for (double exponent = first; exponent <= last; exponent += stride) {
    for (const double m : {1.0, 2.0, 5.0}) {
      if (m > 1 && !fine) break;
      const double v = m * std::pow(10, exponent);
      if (v >= low * (1 - 1e-9) && v / (1 + 1e-9) <= high) out.push_back(v);
    }
  }
  return out;
}

}  // namespace

std::vector<double> ticks(double low, double high, int count, bool log) {
  if (!std::isfinite(low) || !std::isfinite(high)) return {};
  if (!(high > low) || count < 1) return {low};
  if (log && low > 0) {
    std::vector<double> out = log_ticks(low, high);
    if (out.size() >= 2) return out;
  }
  const double rough = high / count - low / count;  // high - low may overflow
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double m : {5.0, 2.0, 1.0}) {
    if (m * power >= rough) step = m * power;
  }
  // A step that is too small or infinite cannot be used as a divisor.
  if (!(step >= 1e-300) || !std::isfinite(step)) return {low, high};
  const double first = std::ceil(low / step - 1e-9);
  std::vector<double> out;
  for (int i = 0; i < std::min(kMostTicks, 2 * count + 2); ++i) {
    const double v = (first + i) * step;
    if (!std::isfinite(v) || v > high + step * 1e-9) break;
    if (out.empty() || v > out.back()) out.push_back(first + i == 0 ? 0 : v);
  }
  return out.empty() ? std::vector<double>{low, high} : out;
}

double Axis::at(double value) const {
  if (!(high > low)) return (from + to) / 2;
  // Halved, since the difference of two large numbers may overflow.
  const double u = log && low > 0
                       ? (std::log(value) - std::log(low)) / (std::log(high) - std::log(low))
                       : (value / 2 - low / 2) / (high / 2 - low / 2);
  return from + u * (to - from);
}

const char* colour(std::size_t index) {
  static constexpr std::array<const char*, 12> kPalette = {
      "#3b82d6", "#e07b28", "#2f9e5b", "#c94d4d", "#8f6cc9", "#a0734e",
      "#d668a8", "#6f8a1f", "#1fa3b5", "#b8941f", "#5b6ee1", "#7d8794"};
  return kPalette[index % kPalette.size()];
}

std::string svg_open(double width, double height, std::string_view title) {
  const std::string w = coordinate(width);
  const std::string h = coordinate(height);
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + w + " " + h + "\" width=\"" +
         w + "\" height=\"" + h + "\" role=\"img\" class=\"plot\"><title>" + escape(title) +
         "</title><style>"
         ".plot{--bg:#fff;--ink:#1c2430;--soft:#667085;--grid:#e4e7ec;"
         "font-family:system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;font-size:12px}"
         "@media (prefers-color-scheme:dark){.plot{--bg:#14181f;--ink:#e6e9ef;--soft:#98a2b3;"
         "--grid:#2b323d}}"
         ".plot text{fill:var(--ink)}.plot .soft{fill:var(--soft)}"
         ".plot .grid{stroke:var(--grid);stroke-width:1}.plot .bg{fill:var(--bg)}"
         ".plot .h{font-size:15px;font-weight:600}.plot .line{fill:none;stroke-linejoin:round;"
         "stroke-linecap:round}</style>"
         "<rect class=\"bg\" width=\"" +
         w + "\" height=\"" + h + "\"/>\n";
}

std::string svg_text(double x, double y, std::string_view text, std::string_view anchor,
                     std::string_view more) {
  return "<text x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) + "\" text-anchor=\"" +
         std::string(anchor) + "\" " + std::string(more) + ">" + escape(text) + "</text>";
}

}  // namespace troupe::tune
