/// Json: a JSON document as a value.
///
///     Json job{{"name", "train"}, {"steps", 100}};  // an object
///     job["losses"] = std::vector{0.5, 0.25};       // an array
///     std::string text = job.dump();                // {"losses":[0.5,0.25],"name":"train",…}
///     Result<Json> back = Json::parse(text);
///     const Json* steps = back->find("steps");      // null when there is no such field
///
/// Json is for configurations, logs and reports. A field takes 72 bytes and more, and finding one
/// takes time linear in the number of fields. dump(), copies and the destructor recurse once per
/// level of nesting.
#pragma once

#include "troupe/runtime/base/result.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace troupe {

class Json {
 public:
  struct Field;
  using Array = std::vector<Json>;
  using Object = std::vector<Field>;  ///< in the order in which fields were added
  /// The order of an object's fields in a text: by name, or as they were added.
  enum class Order : std::uint8_t { by_name, as_added };

  static constexpr int kMaxDepth = 256;  ///< of nested arrays and objects that parse() accepts

  /// Makes null.
  Json() noexcept;
  template <class T>
    requires(std::integral<T> || std::floating_point<T>)
  Json(T value) : value_(Stored<T>(value)) {}
  Json(const char* text);
  Json(std::string_view text);
  Json(std::string text);
  /// Makes an object. Of fields with the same name the first one stays.
  Json(std::initializer_list<Field> fields);
  template <class T>
  Json(const std::vector<T>& elements) : Json(array()) {
    for (const T& element : elements) push_back(element);
  }
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();
  static Json array();
  static Json object();

  /// Parses one document (RFC 8259); a zero byte ends the text. Of fields with the same name the
  /// last value stays. A number that is not an integer of 64 bits becomes a double. Returns
  /// invalid_argument for any other text, for bytes that are not UTF-8, for a number too large for
  /// a double, and for nesting deeper than kMaxDepth.
  static Result<Json> parse(std::string_view text);

  /// Writes the document: in one line without spaces, or with lines indented by `indent` >= 0.
  /// Bytes that are not UTF-8 become U+FFFD. Each double can be read back unchanged. JSON has no
  /// NaN and no infinities, so they become null.
  std::string dump(int indent = -1, Order order = Order::by_name) const;

  bool is_null() const noexcept;
  bool is_object() const noexcept { return as_object() != nullptr; }
  // The next six return nothing for a value of another kind.
  const bool* as_bool() const noexcept;
  const std::string* as_text() const noexcept;
  const Array* as_array() const noexcept;
  const Object* as_object() const noexcept;
  /// Returns any number as a double, rounded to the nearest.
  std::optional<double> as_number() const noexcept;
  /// Returns an integer that T can hold. Never a double, not even 1.0.
  template <std::integral T>
  std::optional<T> as_whole() const noexcept {
    if (const auto* i = std::get_if<std::int64_t>(&value_))
      return std::in_range<T>(*i) ? std::optional<T>(static_cast<T>(*i)) : std::nullopt;
    if (const auto* u = std::get_if<std::uint64_t>(&value_))
      return std::in_range<T>(*u) ? std::optional<T>(static_cast<T>(*u)) : std::nullopt;
    return std::nullopt;
  }

  /// Returns the field of an object; null when there is none, or when this is no object.
  const Json* find(std::string_view name) const noexcept;
  /// Returns the field of an object and adds it if it is missing, as null. The reference is valid
  /// until a field is added. Precondition: this is an object, or null, which becomes an object.
  Json& operator[](std::string_view name);
  /// Adds an element and returns it. The reference is valid until an element is added.
  /// Precondition: this is an array, or null, which becomes an array.
  Json& push_back(Json element);

 private:
  template <class T>
  using Stored = std::conditional_t<
      std::same_as<T, bool>, bool,
      std::conditional_t<std::floating_point<T>, double,
                         std::conditional_t<std::signed_integral<T>, std::int64_t, std::uint64_t>>>;

  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Array,
               Object>
      value_;
};

struct Json::Field {
  std::string name;
  Json value;
};

}  // namespace troupe
