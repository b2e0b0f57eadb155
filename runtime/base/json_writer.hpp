/// JsonWriter: writes a JSON text piece by piece, without a document between.
///
///     std::string line;
///     JsonWriter json(line);
///     json.open('{');
///     json.name("step");
///     json.whole(7);
///     json.close('}');                           // {"step":7}
///
/// The text equals that of Json::dump() in one line. The caller nests brackets and names as JSON
/// wants them: the writer adds commas alone.
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

namespace troupe {

class TROUPE_API JsonWriter {
 public:
  /// Appends to `out`, which outlives the writer.
  explicit JsonWriter(std::string& out) : out_(out), first_(out.size()) {}

  /// Begins an object or an array.
  void open(char bracket) {
    comma();
    out_ += bracket;
  }
  void close(char bracket) { out_ += bracket; }
  /// The name of the object's next value.
  void name(std::string_view name) {
    text(name);
    out_ += ':';
  }
  /// Bytes that are not UTF-8 become U+FFFD.
  void text(std::string_view value);
  /// A number with a fraction, which can be read back unchanged. NaN and infinities become null.
  void number(double value);
  template <std::integral T>
  void whole(T value) {
    comma();
    char digits[24];
    out_.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
  }
  void flag(bool value) {
    comma();
    out_ += value ? "true" : "false";
  }
  void null() {
    comma();
    out_ += "null";
  }

 private:
  /// After a value stands a comma, after a bracket or a name none.
  void comma() {
    if (out_.size() == first_) return;
    const char last = out_.back();
    if (last != '{' && last != '[' && last != ':') out_ += ',';
  }

  std::string& out_;
  std::size_t first_;
};

}  // namespace troupe
