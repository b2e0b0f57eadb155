#include "troupe/runtime/observe/document.hpp"

#include "troupe/runtime/base/short_name.hpp"
#include "troupe/runtime/base/visible_text.hpp"
#include "troupe/runtime/observe/missing.hpp"
#include "troupe/runtime/observe/table.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::observe {
namespace {

Json json_of(const Cell& cell) {
  return std::visit(
      [](const auto& value) {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::monostate>)
          return Json();
        else
          return Json(value);
      },
      cell);
}

/// Returns the text of a cell as the column shows it; empty: no value.
std::string shown(const Column& column, const Cell& cell, const IdPart& part) {
  if (const auto* words = std::get_if<std::string>(&cell)) {
    if (column.show == Show::id) return part.of(*words);
    if (column.show == Show::name) return short_name(visible_text(*words, 4 * kMaxCell));
    return *words;
  }
  if (const auto* flag = std::get_if<bool>(&cell)) return *flag ? "yes" : "no";
  const FieldValue value = value_of(cell);
  const auto* number = std::get_if<double>(&value);
  if (number == nullptr) return {};
  constexpr double kLargest = 9e18;
  const auto count = static_cast<std::uint64_t>(*number > 0 ? std::min(*number, kLargest) : 0.0);
  if (column.show == Show::age) return age_text(count);
  if (column.show == Show::size) return size_text(count);
  return number_text(*number);
}

std::vector<std::string> texts_of(const Answer& answer, const Column& column, std::size_t index) {
  IdPart part;
  if (column.show == Show::id) {
    std::vector<std::string> ids;
    for (const Row& row : answer.rows)
      if (const auto* id = std::get_if<std::string>(&row.cells[index])) ids.push_back(*id);
    part = unique_part(std::move(ids));
  }
  std::vector<std::string> texts;
  for (const Row& row : answer.rows) texts.push_back(shown(column, row.cells[index], part));
  return texts;
}

}  // namespace

Json document_of(RowKind kind, const Answer& answer, std::int64_t at_unix_ns) {
  Json rows = Json::array();
  const auto columns = columns_of(kind);
  for (const Row& row : answer.rows) {
    Json& fields = rows.push_back(Json::object());
    for (std::size_t i = 0; i < columns.size(); ++i)
      fields[columns[i].name] = json_of(row.cells[i]);
  }
  Json document{{"kind", name_of(kind)},       {"at_unix_ns", at_unix_ns},
                {"total", answer.total},       {"matched", answer.matched},
                {"shown", answer.rows.size()}, {"unanswered", Missing(answer).json()},
                {"rows", std::move(rows)}};
  if (answer.more_unanswered > 0) document["more_unanswered"] = answer.more_unanswered;
  if (!answer.next.empty()) document["next"] = answer.next;
  return document;
}

std::string text_of(RowKind kind, const Answer& answer) {
  std::vector<std::vector<std::string>> table(answer.rows.size() + 1);
  const auto columns = columns_of(kind);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].show == Show::hidden) continue;
    auto texts = texts_of(answer, columns[i], i);
    const bool empty = std::all_of(texts.begin(), texts.end(),
                                   [](const std::string& text) { return text.empty(); });
    if (empty && !texts.empty()) continue;
    table[0].emplace_back(columns[i].title);
    for (std::size_t row = 0; row < texts.size(); ++row)
      table[row + 1].push_back(texts[row].empty() ? "-" : std::move(texts[row]));
  }
  std::string text = table_text(table);
  if (answer.matched != answer.rows.size() || answer.total != answer.matched)
    text += std::to_string(answer.rows.size()) + " of " + std::to_string(answer.matched) +
            " that match; " + std::to_string(answer.total) + " " + std::string(name_of(kind)) +
            " in all" + (answer.next.empty() ? "" : "; --after " + answer.next + " goes on") + "\n";
  return text;
}

}  // namespace troupe::observe
