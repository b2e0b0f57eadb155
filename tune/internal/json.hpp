/// The JSON helpers that the log and the exports share.
#pragma once

#include "troupe/runtime/base/json.hpp"
#include "troupe/tune/domain.hpp"

#include <cmath>
#include <string>

namespace troupe::tune {

/// Writes JSON in one line, with the fields in the order in which they were added.
inline std::string json_line(const Json& json) {
  return json.dump(-1, Json::Order::as_added);
}

/// Writes a number so that it can be read back unchanged. JSON has no NaN and no infinities: NaN
/// becomes null, the infinities become the strings "inf" and "-inf".
inline Json json_number(double value) {
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

/// Returns an object with a point's values by parameter: options of a choice as their texts.
Json point_json(const Point& point, const SearchSpace& space);
/// Reads what point_json() and json_number() wrote. An option that the space lacks becomes -1.
/// Throws InvalidArgument for anything else.
Point point_from_json(const Json& json, const SearchSpace& space);
double number_from_json(const Json& json);

}  // namespace troupe::tune
