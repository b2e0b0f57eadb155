#include "troupe/tune/internal/svg.hpp"

#include <array>
#include <cmath>
#include <cstdio>

namespace troupe::tune {

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
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
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", std::isfinite(value) ? value : 0.0);
  return text;
}

std::vector<double> ticks(double low, double high, int count, bool log) {
  std::vector<double> out;
  if (!(high > low) || count < 1) return {low};
  if (log) {
    const double decades = std::log10(high / low);
    const bool fine = decades < 2.5;
    for (double power = std::pow(10, std::floor(std::log10(low))); power <= high; power *= 10) {
      for (const double m : {1.0, 2.0, 5.0}) {
        if (m > 1 && !fine) break;
        const double v = m * power;
        if (v >= low * (1 - 1e-9) && v <= high * (1 + 1e-9)) out.push_back(v);
      }
    }
    if (out.size() >= 2) return out;
    out.clear();
  }
  const double rough = (high - low) / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double m : {5.0, 2.0, 1.0}) {
    if (m * power >= rough) step = m * power;
  }
  for (double k = std::ceil(low / step - 1e-9); k * step <= high + step * 1e-9; ++k) {
    out.push_back(k == 0 ? 0 : k * step);
  }
  return out;
}

double Axis::at(double value) const {
  const double u = log ? (std::log(value) - std::log(low)) / (std::log(high) - std::log(low))
                       : (value - low) / (high - low);
  return high > low ? from + u * (to - from) : (from + to) / 2;
}

const char* colour(std::size_t index) {
  static constexpr std::array<const char*, 12> palette = {
      "#3b82d6", "#e07b28", "#2f9e5b", "#c94d4d", "#8f6cc9", "#a0734e",
      "#d668a8", "#6f8a1f", "#1fa3b5", "#b8941f", "#5b6ee1", "#7d8794"};
  return palette[index % palette.size()];
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
