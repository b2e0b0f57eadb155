/// The rows of the cluster's lists: which columns a kind of row has, how `--where` names them, and
/// how a table shows them.
///
///     const auto columns = columns_of(RowKind::tasks);
///     Row row = make_row(RowKind::tasks, id.str());
///     row.cells[column_of(RowKind::tasks, "state")] = std::string("running");
#pragma once

#include "troupe/runtime/base/where.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace troupe::observe {

/// reasons: how many tasks wait, and why. waits: what one owner knows about a thing that waits or is
/// waited for, from which WaitGraph is made (wait_rows.hpp). queues: how many calls of an actor have
/// not ended. Nobody lists these three by name.
enum class RowKind : std::uint8_t {
  tasks,
  functions,
  processes,
  nodes,
  actors,
  jobs,
  objects,
  reasons,
  waits,
  queues,
  events
};
inline constexpr std::size_t kAllRowKinds = 11;
/// The kinds that people list.
inline constexpr RowKind kRowKinds[] = {RowKind::tasks,   RowKind::functions, RowKind::processes,
                                        RowKind::nodes,   RowKind::actors,    RowKind::jobs,
                                        RowKind::objects, RowKind::events};
std::string_view name_of(RowKind kind) noexcept;
/// Errors: invalid_argument that names the kinds.
Result<RowKind> parse_row_kind(std::string_view name);
/// Returns the kind of this number; nullopt: there is none.
std::optional<RowKind> row_kind_of(std::uint8_t number) noexcept;

/// How a table shows a column. hidden: in the document alone. id: the part by which ids differ.
/// name: a short name of a type or function.
enum class Show : std::uint8_t { hidden, plain, id, name, age, size };

struct Column {
  std::string_view name;   ///< in the document, with its unit: since_ns
  std::string_view field;  ///< in `--where` and `--sort`: since
  FieldKind kind = FieldKind::text;
  Show show = Show::hidden;
  std::string_view title;  ///< of the table
  /// The texts that it can have; empty: every text.
  std::span<const std::string_view> values{};
};
std::span<const Column> columns_of(RowKind kind) noexcept;
/// The same columns as fields of Where and SortBy; the indexes are equal.
std::span<const WhereField> fields_of(RowKind kind);
/// Precondition: the kind has such a field.
std::size_t column_of(RowKind kind, std::string_view field) noexcept;

using Cell = std::variant<std::monostate, bool, std::int64_t, double, std::string>;
struct Row {
  std::string id;           ///< differs from the other rows' ids; never changes
  std::vector<Cell> cells;  ///< one for each column
};
/// Makes a row without values. A kind whose first column is an id has it set.
Row make_row(RowKind kind, std::string id);
/// The value as Where reads it; a bool is the text true or false. It points into the cell.
FieldValue value_of(const Cell& cell) noexcept;

/// Returns what is wrong with a row that another process sent; nullopt: it has the form of its kind.
std::optional<std::string> problem_of(RowKind kind, const Row& row);

inline constexpr std::size_t kMaxIdBytes = 256;
inline constexpr std::size_t kMaxTextBytes = 64 * 1024;  ///< of a cell
/// Rows of functions, reasons and queues are counts: those of one function or actor are added up.
constexpr bool adds_up(RowKind kind) noexcept {
  return kind == RowKind::functions || kind == RowKind::reasons || kind == RowKind::queues;
}

}  // namespace troupe::observe
