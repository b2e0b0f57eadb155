#include "troupe/runtime/observe/question.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

namespace troupe::observe {
namespace {

/// The order of a list for which nobody has named one.
std::string_view default_sort(RowKind kind) noexcept {
  if (kind == RowKind::reasons) return "tasks";
  return kind == RowKind::nodes ? "name" : kind == RowKind::functions ? "function" : "";
}

std::string hex_of(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const char c : bytes) {
    hex += kDigits[static_cast<unsigned char>(c) >> 4];
    hex += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return hex;
}

std::optional<std::string> bytes_of(std::string_view hex) {
  if (hex.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    unsigned value = 0;
    const auto parsed = std::from_chars(hex.data() + i, hex.data() + i + 2, value, 16);
    if (parsed.ec != std::errc{} || parsed.ptr != hex.data() + i + 2) return std::nullopt;
    bytes += static_cast<char>(value);
  }
  return bytes;
}

template <class T>
std::optional<T> number_in(std::string_view text) {
  T value{};
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Writes 12.5 as n12.5, "ab" as t6162, and none as 0.
std::string text_of(const Cell& cell) {
  const FieldValue value = value_of(cell);
  if (const auto* words = std::get_if<std::string_view>(&value)) return "t" + hex_of(*words);
  const auto* number = std::get_if<double>(&value);
  if (number == nullptr) return "0";
  if (std::isnan(*number)) return "nan";
  std::array<char, 64> digits{};
  const auto written = std::to_chars(digits.data(), digits.data() + digits.size(), *number);
  return "n" + std::string(digits.data(), written.ptr);
}

std::optional<Cell> cell_in(std::string_view text) {
  if (text == "0") return Cell();
  if (text == "nan") return Cell(std::numeric_limits<double>::quiet_NaN());
  if (text.starts_with('n')) {
    const auto number = number_in<double>(text.substr(1));
    return number ? std::optional(Cell(*number)) : std::nullopt;
  }
  if (!text.starts_with('t')) return std::nullopt;
  auto words = bytes_of(text.substr(1));
  if (!words || words->size() > kMaxKeyBytes) return std::nullopt;
  return Cell(std::move(*words));
}

Cell key_value(const FieldValue& value) {
  if (const auto* words = std::get_if<std::string_view>(&value))
    return std::string(words->substr(0, kMaxKeyBytes));
  if (const auto* number = std::get_if<double>(&value)) return *number;
  return {};
}

}  // namespace

Result<Query> Query::parse(const Question& question) {
  Query query;
  query.kind_ = question.kind;
  query.limit_ = question.limit;
  if (question.limit == 0 || question.limit > kMaxRows)
    return Error(Code::invalid_argument, "the limit " + std::to_string(question.limit) +
                                             " is not between 1 and " + std::to_string(kMaxRows) +
                                             ": ask for fewer rows, page by page");
  const auto fields = fields_of(question.kind);
  auto where = Where::parse(question.where, fields);
  if (!where) return where.error();
  query.where_ = std::move(*where);
  const std::string_view order =
      question.sort.empty() ? default_sort(question.kind) : std::string_view(question.sort);
  if (!order.empty()) {
    auto sort = SortBy::parse(order, fields);
    if (!sort) return sort.error();
    query.sort_ = *sort;
  }
  if (question.after.empty()) return query;
  const Error bad(Code::invalid_argument,
                  "the list cannot go on: 'after' is no text of an earlier answer; ask without it");
  const std::string_view after = question.after;
  if (after.size() > kMaxAfterBytes) return bad;
  // AS_OF:VALUE:ID, or AS_OF for the first page
  query.as_of_ = number_in<std::int64_t>(after);
  if (query.as_of_) return query;
  const auto first = after.find(':'), last = after.rfind(':');
  if (first == std::string_view::npos || first == last) return bad;
  query.as_of_ = number_in<std::int64_t>(after.substr(0, first));
  auto value = cell_in(after.substr(first + 1, last - first - 1));
  auto id = bytes_of(after.substr(last + 1));
  if (!query.as_of_ || !value || !id || id->empty() || id->size() > kMaxIdBytes) return bad;
  query.after_ = RowKey{std::move(*value), std::move(*id)};
  return query;
}

RowKey Query::key_of(std::string id, const RowFields& fields) const {
  return {sort_ ? key_value(fields(sort_->field())) : Cell(), std::move(id)};
}

RowKey Query::key_of(const Row& row) const {
  return {sort_ ? key_value(value_of(row.cells[sort_->field()])) : Cell(), row.id};
}

bool Query::is_before(const RowKey& a, const RowKey& b) const noexcept {
  const int order = sort_ ? sort_->compare(value_of(a.value), value_of(b.value)) : 0;
  if (order != 0) return order < 0;
  return compare_naturally(a.id, b.id) < 0;
}

std::string Query::after(const RowKey& last, std::int64_t as_of) const {
  return std::to_string(as_of) + ":" + text_of(last.value) + ":" + hex_of(last.id);
}

}  // namespace troupe::observe
