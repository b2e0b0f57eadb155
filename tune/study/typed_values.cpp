#include "troupe/tune/study/typed_values.hpp"

#include "troupe/runtime/base/size_text.hpp"
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/tune/internal/settings.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

namespace troupe::tune {
namespace {

constexpr std::size_t kShownText =
    60;  ///< the most characters of a typed text that an error repeats

Error bad_value(const std::string& why) {
  return Error(Code::invalid_argument, "tune: " + why);
}

std::string in_quotes(std::string_view text) {
  return "'" + visible_text(text, kShownText) + "'";
}

std::optional<double> finite_number(std::string_view text) {
  double value = 0;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto read = std::from_chars(begin, end, value);
  if (read.ec != std::errc{} || read.ptr != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::string names_of(const SearchSpace& space) {
  std::string names;
  for (const Parameter& p : space.parameters) names += (names.empty() ? "" : ", ") + p.name;
  return names;
}

Result<double> read_value(const Parameter& parameter, const std::string& text) {
  const Domain& domain = parameter.domain;
  if (domain.kind == Domain::Kind::choice) {
    const auto found = std::find(domain.options.begin(), domain.options.end(), text);
    if (found != domain.options.end()) return static_cast<double>(found - domain.options.begin());
    return bad_value(parameter.name + " = " + in_quotes(text) + " is no option of " + show(domain));
  }
  const auto value = finite_number(text);
  if (!value)
    return bad_value(parameter.name + " = " + in_quotes(text) + " is no number: take one of " +
                     show(domain));
  if (!contains(domain, *value))
    return bad_value(parameter.name + " = " + in_quotes(text) + " is outside " + show(domain));
  return *value;
}

enum class TextKind : std::uint8_t { count, time, truth, number };
struct Option {
  TextKind kind = TextKind::count;
  double least = 0;  ///< of a count
};

/// Returns how the text of an option is read.
Option option_of(std::string_view name) {
  if (name == "trials") return {TextKind::count, 1};
  if (name == "max_failures") return {TextKind::count, -1};
  if (name == "fail_fast" || name == "save_at_end") return {TextKind::truth};
  if (name == "time_limit" || name == "stop_grace") return {TextKind::time};
  if (name == "target") return {TextKind::number};
  return {TextKind::count, 0};
}

Result<double> read_setting(const std::string& name, const std::string& text) {
  const Option option = option_of(name);
  const std::string what = name + " = " + in_quotes(text);
  switch (option.kind) {
    case TextKind::truth:
      if (text == "true" || text == "1") return 1.0;
      if (text == "false" || text == "0") return 0.0;
      return bad_value(what + " is neither true nor false");
    case TextKind::time: {
      if (text == "0") return 0.0;
      const auto time = parse_duration(text);
      if (time && *time >= Duration::zero())
        return std::ceil(static_cast<double>(time->count()) / 1e3);
      return bad_value(what + " is no time: take one like 30s, 10m or 2h");
    }
    case TextKind::number: {
      if (text == "none") return std::nan("");
      const auto value = finite_number(text);
      return value ? Result<double>(*value)
                   : bad_value(what + " is no number: take one, or none for no target");
    }
    case TextKind::count: break;
  }
  const auto value = finite_number(text);
  const double most = name == "max_steps" || name == "save_every"
                          ? 0x1p53
                          : static_cast<double>(std::numeric_limits<int>::max());
  if (value && *value >= option.least && *value <= most && std::trunc(*value) == *value)
    return *value;
  return bad_value(what + " is no whole number from " +
                   std::to_string(static_cast<int>(option.least)) + " to " + show_number(most));
}

}  // namespace

Result<Point> read_point(const SearchSpace& space, const TypedValues& values) {
  for (const auto& [name, text] : values)
    if (std::none_of(space.parameters.begin(), space.parameters.end(),
                     [&, &wanted = name](const Parameter& p) { return p.name == wanted; }))
      return bad_value("the space has no parameter " + in_quotes(name) + ": it has " +
                       names_of(space));
  Point point;
  for (const Parameter& parameter : space.parameters) {
    const auto typed = values.find(parameter.name);
    if (typed == values.end())
      return bad_value("parameter " + parameter.name + " has no value: give each of " +
                       names_of(space));
    const auto value = read_value(parameter, typed->second);
    if (!value) return value.error();
    point.push_back(*value);
  }
  return point;
}

Result<std::map<std::string, double>> read_settings(const TypedValues& values) {
  if (values.empty()) return bad_value("no option is named: write one like trials=500");
  const Settings known = settings_of({.goal = minimize});
  std::map<std::string, double> settings;
  for (const auto& [name, text] : values) {
    if (known.count(name) == 0) {
      std::string names;
      for (const auto& [other, value] : known) names += (names.empty() ? "" : ", ") + other;
      return bad_value(in_quotes(name) +
                       " is no option that may change while a study runs: those are " + names);
    }
    const auto value = read_setting(name, text);
    if (!value) return value.error();
    settings[name] = *value;
  }
  return settings;
}

}  // namespace troupe::tune
