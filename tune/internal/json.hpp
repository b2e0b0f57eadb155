/// JSON as the log and the exports write it.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

namespace troupe::tune {

/// Fields stay in the order in which they were added.
using Json = nlohmann::ordered_json;

/// One line. Bytes that are no UTF-8 become U+FFFD.
inline std::string json_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// A number that comes back unchanged. JSON has no word for those that are none: NaN is null, the
/// infinities are the strings inf and -inf.
inline Json json_number(double value) {
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;  // nlohmann writes NaN as null
}

}  // namespace troupe::tune
