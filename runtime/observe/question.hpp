/// A question about rows, as it goes from a verb to agents and from each to its processes, and its
/// parsed form.
///
///     Result<Query> query = Query::parse({.kind = RowKind::tasks, .where = "state = running"});
///     Selection selection(*query);            // at a source, see answer.hpp
#pragma once

#include "troupe/runtime/base/where.hpp"
#include "troupe/runtime/observe/rows.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::observe {

inline constexpr std::uint32_t kMaxRows = 1000;  ///< of one answer
inline constexpr std::size_t kMaxAfterBytes = 2048;

struct Question {
  RowKind kind = RowKind::tasks;
  std::string where;  ///< empty: all rows
  std::string sort;   ///< empty: the kind's own order
  std::uint32_t limit = 100;
  std::string after;  ///< Answer::next of the page before; empty: the first page
};

/// What decides a row's place: the value by which rows are sorted, then the id.
struct RowKey {
  Cell value;  ///< a text is cut to kMaxKeyBytes
  std::string id;
};
inline constexpr std::size_t kMaxKeyBytes = 256;

class Query {
 public:
  /// Errors: invalid_argument for a filter or an order that does not parse, a limit that is 0 or
  /// over kMaxRows, and an `after` that no answer gave.
  static Result<Query> parse(const Question& question);

  RowKind kind() const noexcept { return kind_; }
  std::uint32_t limit() const noexcept { return limit_; }
  const Where& where() const noexcept { return where_; }
  /// The time to which every `since` refers. Later pages keep the time of the first one: ages that
  /// grew in between would move rows across the page's edge. Unix time in nanoseconds.
  std::int64_t as_of(std::int64_t now_unix_ns) const noexcept {
    return as_of_ ? *as_of_ : now_unix_ns;
  }

  /// Returns the key of a row whose fields these are.
  RowKey key_of(std::string id, const RowFields& fields) const;
  RowKey key_of(const Row& row) const;
  /// Returns whether a row with key `a` stands before one with key `b`.
  bool is_before(const RowKey& a, const RowKey& b) const noexcept;
  /// Returns whether the row belongs to an earlier page.
  bool was_shown(const RowKey& key) const noexcept { return after_ && !is_before(*after_, key); }
  /// Returns the `after` of the page that begins behind this row.
  std::string after(const RowKey& last, std::int64_t as_of) const;

 private:
  RowKind kind_ = RowKind::tasks;
  std::uint32_t limit_ = 0;
  Where where_;
  std::optional<SortBy> sort_;
  std::optional<RowKey> after_;
  std::optional<std::int64_t> as_of_;
};

}  // namespace troupe::observe
