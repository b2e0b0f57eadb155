/// Writing JSON: text is escaped, doubles come back unchanged, NaN and infinities become strings.
#pragma once

#include "troupe/tune/internal/text.hpp"

#include <cmath>
#include <string>
#include <string_view>

namespace troupe::tune {

/// A quoted JSON string. Bytes that are no valid UTF-8 become '?'; '<' is escaped, so that the
/// result may stand in a script element of a page.
std::string json_text(std::string_view text);

inline std::string json_number(double value) {
  if (std::isnan(value)) return "\"nan\"";
  if (std::isinf(value)) return value > 0 ? "\"inf\"" : "\"-inf\"";
  return exact(value);
}

/// Builds one object, field by field.
class JsonObject {
 public:
  JsonObject& raw(std::string_view key, std::string_view json) {
    out_ += out_.size() > 1 ? "," : "";
    out_ += json_text(key) + ":" + std::string(json);
    return *this;
  }
  JsonObject& text(std::string_view key, std::string_view value) {
    return raw(key, json_text(value));
  }
  JsonObject& number(std::string_view key, double value) { return raw(key, json_number(value)); }
  JsonObject& whole(std::string_view key, long long value) {
    return raw(key, std::to_string(value));
  }
  JsonObject& flag(std::string_view key, bool value) { return raw(key, value ? "true" : "false"); }
  std::string str() const { return out_ + "}"; }

 private:
  std::string out_ = "{";
};

/// [a,b,…]
template <class Range, class F>
std::string json_array(const Range& range, F element) {
  std::string out = "[";
  for (const auto& x : range) {
    if (out.size() > 1) out += ',';
    out += element(x);
  }
  return out + "]";
}

}  // namespace troupe::tune
