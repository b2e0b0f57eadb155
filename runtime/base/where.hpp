/// The language of `--where` and `--sort`: which rows of a table a person wants, and in which
/// order. Where and SortBy are parsed once and then read the fields of each row through a callback.
/// Plain state machines.
///
///     const WhereField fields[] = {{"state", FieldKind::text}, {"since", FieldKind::time}};
///     Result<Where> where = Where::parse("state = running and since > 10s", fields);
///     if (where && where->matches([&](std::size_t field) { return value_of(row, field); })) show(row);
///
/// A condition is `FIELD OPERATOR VALUE`, with = != < <= > >=, or ~ for "contains". Conditions are
/// joined by `and`, `or`, `not` and parentheses; `not` binds closest, then `and`. A value is a word,
/// a text in quotes, or a number. Times have a unit (ms s m h d), sizes may have one (KiB MiB GiB
/// TiB). `FIELD = none` finds the rows that lack a value.
#pragma once

#include "troupe/runtime/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace troupe {

/// Which values a field has. time: nanoseconds. bytes: a size. any: texts in some rows and numbers
/// in others.
enum class FieldKind : std::uint8_t { text, number, time, bytes, any };

struct WhereField {
  std::string name;
  FieldKind kind = FieldKind::text;
  /// The texts that the field can have, for `=` and `!=`. Empty: every text.
  std::span<const std::string_view> values{};
};

/// A field of one row: none, a number, or a text. The text must live until the callback is called
/// again.
using FieldValue = std::variant<std::monostate, double, std::string_view>;
/// Returns the value of the field with this index in the list that parse() got.
using RowFields = std::function<FieldValue(std::size_t field)>;

class Where {
 public:
  static constexpr std::size_t kMaxBytes = 1024;
  static constexpr std::size_t kMaxDepth = 32;  ///< of parentheses and `not`

  /// Matches every row.
  Where() = default;
  /// Parses a filter; an empty one matches every row. Errors: invalid_argument that names the
  /// column and what is expected there, or the fields if one is unknown, or the texts of a field that
  /// has others. A filter over kMaxBytes, or deeper than kMaxDepth, is refused.
  static Result<Where> parse(std::string_view text, std::span<const WhereField> fields);

  /// Asks for the fields that the answer depends on. A missing value fulfils `!=` alone, and so
  /// does a value of another type.
  bool matches(const RowFields& row) const;
  bool matches_all() const noexcept { return nodes_.empty(); }
  /// Returns the text that this field has in every row that matches: a walk passes over the others
  /// at once. None: rows with several texts may match.
  std::optional<std::string_view> text_of_all(std::size_t field) const noexcept;

 private:
  friend class WhereParser;
  enum class Kind : std::uint8_t { both, either, inverse, compare };
  enum class Op : std::uint8_t { equal, unequal, less, most, greater, least, contains };
  struct Node {
    Kind kind = Kind::compare;
    std::size_t left = 0, right = 0;  ///< of both, either and inverse: indexes of nodes
    std::size_t field = 0;
    Op op = Op::equal;
    std::string text;              ///< the value as written
    std::optional<double> number;  ///< the value, if numbers are compared with it
    bool none = false;             ///< the word `none`
  };
  bool holds(std::size_t node, const RowFields& row) const;
  std::optional<std::string_view> text_of_all(std::size_t node, std::size_t field) const noexcept;
  static bool holds(const Node& node, const FieldValue& value);
  static bool holds(Op op, int order) noexcept;

  std::vector<Node> nodes_;  // the last one is the root
};

/// `--sort FIELD`, `FIELD:asc` or `FIELD:desc`. Without a direction, texts go from A to Z, and
/// numbers, times and sizes from the largest. Rows without a value come last.
class SortBy {
 public:
  /// Errors: invalid_argument that names the fields.
  static Result<SortBy> parse(std::string_view text, std::span<const WhereField> fields);

  std::size_t field() const noexcept { return field_; }
  bool descending() const noexcept { return descending_; }
  /// Returns a number below, equal to or above 0 if a row with value `a` comes before, beside or
  /// after one with value `b`. A total order: numbers, NaN, texts, none. The direction turns it
  /// round, except that NaN and none stay behind.
  int compare(const FieldValue& a, const FieldValue& b) const noexcept;

 private:
  std::size_t field_ = 0;
  bool descending_ = false;
};

/// Returns the order of two texts as people count: node-2 is before node-10. 0: they are equal.
int compare_naturally(std::string_view a, std::string_view b) noexcept;

}  // namespace troupe
