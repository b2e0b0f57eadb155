#include "report.hpp"

#include "troupe/runtime/version.hpp"

#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <fstream>

namespace troupe::bench {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double spread(const std::vector<double>& values) {
  const auto ends = std::minmax_element(values.begin(), values.end());
  const double middle = median(values);
  return middle == 0 ? 0 : (*ends.second - *ends.first) / middle;
}

/// Returns the machine's first "model name" without characters that JSON would have to escape.
std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const auto colon = line.find(": ");
    if (line.rfind("model name", 0) != 0 || colon == std::string::npos) continue;
    std::string name = line.substr(colon + 2);
    std::erase_if(name, [](char c) { return c < ' ' || c > '~' || c == '"' || c == '\\'; });
    return name;
  }
  return "unknown";
}

const char* text_of(const std::optional<bool>& pass, bool noisy) {
  if (noisy) return "noisy";
  if (!pass) return "";
  return *pass ? "yes" : "NO";
}

}  // namespace

Judged judge(const Series& series) {
  Judged judged;
  judged.goal = series.goal;
  Row& row = judged.row;
  row.name = series.name;
  row.placement = series.placement;
  row.unit = series.unit;
  row.value = median(series.values);
  row.spread = spread(series.values);
  if (!series.floors.empty()) {
    row.floor = median(series.floors);
    std::vector<double> ratios = series.ratios;
    for (std::size_t i = ratios.size(); i < series.values.size(); ++i)
      ratios.push_back(series.floors[i] == 0 ? 0 : series.values[i] / series.floors[i]);
    row.ratio = median(ratios);
    if (series.goal.of == Goal::Of::ratio) row.spread = spread(ratios);
  }
  const bool repeated = series.watched.size() >= 3 && spread(series.watched) <= kCalm;
  judged.noisy = series.calmest > kCalm && !repeated;
  if (series.goal.of == Goal::Of::none || judged.noisy) return judged;
  const double measured = series.goal.of == Goal::Of::value ? row.value : row.ratio;
  judged.pass = series.goal.at_most ? measured <= series.goal.limit : measured >= series.goal.limit;
  return judged;
}

bool too_noisy(const std::vector<Judged>& rows) noexcept {
  const auto noisy =
      std::count_if(rows.begin(), rows.end(), [](const Judged& j) { return j.noisy; });
  return noisy * 10 > static_cast<std::ptrdiff_t>(rows.size());
}

std::string text_of(const Goal& goal) {
  if (goal.of == Goal::Of::none) return "";
  char text[64];
  std::snprintf(text, sizeof text, "%s %s %g", goal.of == Goal::Of::value ? "value" : "ratio",
                goal.at_most ? "<=" : ">=", goal.limit);
  return text;
}

std::string to_report(const std::vector<Judged>& rows) {
  std::string text;
  char line[256];
  std::snprintf(line, sizeof line, "%-19s %-9s %10s %-8s %10s %8s %7s  %-15s %s\n", "name",
                "placement", "value", "unit", "floor", "ratio", "spread", "goal", "reached");
  text += line;
  for (const Judged& j : rows) {
    char floor[32] = "", ratio[32] = "";
    if (j.row.floor != 0) {
      std::snprintf(floor, sizeof floor, "%.4g", j.row.floor);
      std::snprintf(ratio, sizeof ratio, "%.3g", j.row.ratio);
    }
    std::snprintf(line, sizeof line, "%-19s %-9s %10.4g %-8s %10s %8s %6.0f%%  %-15s %s\n",
                  j.row.name.c_str(), j.row.placement.c_str(), j.row.value, j.row.unit.c_str(),
                  floor, ratio, j.row.spread * 100, text_of(j.goal).c_str(),
                  text_of(j.pass, j.noisy));
    text += line;
  }
  return text;
}

std::string to_report_json(const std::vector<Judged>& rows) {
  char line[640];
  std::snprintf(line, sizeof line,
                "{\"machine\": {\"cpu\": \"%s\", \"cpus\": %zu},\n \"build\": {\"version\": "
                "\"%s\", \"compiler\": \"%s\", \"optimized\": %s},\n \"rows\": [",
                cpu_name().c_str(), allowed_cpus().size(), std::string(version()).c_str(),
                __VERSION__,
#if defined(__OPTIMIZE__)
                "true"
#else
                "false"
#endif
  );
  std::string text = line;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Judged& j = rows[i];
    const char* pass = !j.pass ? "null" : *j.pass ? "true" : "false";
    std::snprintf(line, sizeof line,
                  "%s\n  {\"name\": \"%s\", \"placement\": \"%s\", \"value\": %.6g, \"unit\": "
                  "\"%s\", \"floor\": %.6g, \"ratio\": %.4g, \"spread\": %.3g, \"goal\": \"%s\", "
                  "\"pass\": %s, \"noisy\": %s}",
                  i == 0 ? "" : ",", j.row.name.c_str(), j.row.placement.c_str(), j.row.value,
                  j.row.unit.c_str(), j.row.floor, j.row.ratio, j.row.spread,
                  text_of(j.goal).c_str(), pass, j.noisy ? "true" : "false");
    text += line;
  }
  return text + "\n ]}\n";
}

}  // namespace troupe::bench
