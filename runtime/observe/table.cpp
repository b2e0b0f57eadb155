#include "troupe/runtime/observe/table.hpp"

#include "troupe/runtime/base/visible_text.hpp"

#include <algorithm>
#include <cstdio>
#include <set>

namespace troupe::observe {

std::string IdPart::of(const std::string& id) const {
  if (id.size() <= digits) return id;
  return at_end ? id.substr(id.size() - digits) : id.substr(0, digits);
}

namespace {

/// Whether one process has counted this id: others of it have the same beginning.
bool is_counted(const std::string& id) {
  constexpr std::size_t kHalf = 16, kHigh = 8;  // of the count's digits
  return id.size() == 2 * kHalf && id.compare(kHalf, kHigh, std::string(kHigh, '0')) == 0;
}

}  // namespace

IdPart unique_part(std::vector<std::string> ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  const auto differ = [&](const IdPart& part) {
    std::set<std::string> parts;
    for (const std::string& id : ids) parts.insert(part.of(id));
    return parts.size() == ids.size();
  };
  const bool first = std::any_of(ids.begin(), ids.end(), is_counted);
  IdPart part;
  for (; part.digits < 32; ++part.digits)
    for (const bool at_end : {first, !first}) {
      part.at_end = at_end;
      if (differ(part)) return part;
    }
  return part;
}

Result<std::string> id_meant(std::string_view part, const std::vector<std::string>& ids,
                             std::string_view list) {
  constexpr std::size_t kListed = 10, kShown = 64;
  const std::string shown = "'" + visible_text(part, kShown) + "'";
  std::set<std::string> fits;
  for (const std::string& id : ids) {
    if (id == part) return id;
    if (!part.empty() && (id.starts_with(part) || id.ends_with(part))) fits.insert(id);
  }
  if (fits.size() == 1) return *fits.begin();
  if (fits.empty())
    return Error(Code::invalid_argument, "no id of the " + std::string(list) +
                                             " begins or ends with " + shown + ": 'troupe list " +
                                             std::string(list) + "' shows them");
  std::string text;
  std::size_t listed = 0;
  for (const std::string& id : fits) {
    if (++listed > kListed) break;
    text += (text.empty() ? "" : ", ") + visible_text(id, kShown);
  }
  if (fits.size() > kListed) text += " and " + std::to_string(fits.size() - kListed) + " more";
  return Error(Code::invalid_argument, shown + " fits " + std::to_string(fits.size()) + " " +
                                           std::string(list) + " (" + text +
                                           "): write more digits");
}

std::string size_text(std::uint64_t bytes) {
  const char* unit = "B";
  double value = static_cast<double>(bytes);
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = next;
  }
  char text[32];
  std::snprintf(text, sizeof text, value < 10 && *unit != 'B' ? "%.1f %s" : "%.0f %s", value, unit);
  return text;
}

std::string age_text(std::uint64_t nanoseconds) {
  const std::uint64_t seconds = nanoseconds / 1'000'000'000;
  const auto two = [](std::uint64_t large, const char* unit, std::uint64_t small,
                      const char* rest) {
    return std::to_string(large) + unit + " " + std::to_string(small) + rest;
  };
  if (seconds < 60) return std::to_string(seconds) + "s";
  if (seconds < 3600) return two(seconds / 60, "m", seconds % 60, "s");
  if (seconds < 86400) return two(seconds / 3600, "h", seconds / 60 % 60, "m");
  return two(seconds / 86400, "d", seconds / 3600 % 24, "h");
}

std::string number_text(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g", number);
  return text;
}

std::string table_text(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::vector<std::string>> cells;
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    auto& line = cells.emplace_back();
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      line.push_back(visible_text(row[i], i + 1 < row.size() ? kMaxCell : kMaxLastCell));
      widths[i] = std::max(widths[i], troupe::columns_of(line.back()));
    }
  }
  std::string text;
  for (const auto& row : cells) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(widths[i] - troupe::columns_of(row[i]) + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace troupe::observe
