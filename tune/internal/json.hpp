/// The JSON helpers that the log and the exports share.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

namespace troupe::tune {

/// A JSON value whose fields keep the order in which they were added.
using Json = nlohmann::ordered_json;

/// Writes JSON in one line. Bytes that are not UTF-8 become U+FFFD.
inline std::string json_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Writes a number so that it can be read back unchanged. JSON has no NaN and no infinities: NaN
/// becomes null, the infinities become the strings "inf" and "-inf".
inline Json json_number(double value) {
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;  // nlohmann writes NaN as null
}

}  // namespace troupe::tune
