#include "troupe/runtime/observe/answer.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

namespace troupe::observe {
namespace {

constexpr std::size_t kMaxWhy = 300;

/// Adds two counts. Counts of other processes may be anything.
Cell sum_of(const Cell& a, const Cell& b) {
  if (std::holds_alternative<std::monostate>(a)) return b;
  if (std::holds_alternative<std::monostate>(b)) return a;
  const auto* x = std::get_if<std::int64_t>(&a);
  const auto* y = std::get_if<std::int64_t>(&b);
  std::int64_t sum = 0;
  if (x != nullptr && y != nullptr && !__builtin_add_overflow(*x, *y, &sum)) return sum;
  const auto number = [](const Cell& cell) {
    const FieldValue value = value_of(cell);
    const auto* real = std::get_if<double>(&value);
    return real != nullptr ? *real : 0;
  };
  return number(a) + number(b);
}

std::uint64_t sum_of(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/// Reads a row's cells as fields.
RowFields fields_in(const Row& row) {
  return [&row](std::size_t field) { return value_of(row.cells[field]); };
}

}  // namespace

bool Selection::wants(const std::function<std::string()>& id, const RowFields& fields) {
  ++answer_.total;
  if (of_ == Of::rows && adds_up(query_.kind())) {
    ++answer_.matched;
    if (kept_.size() < most()) return true;
    answer_.more = true;
    return false;
  }
  if (!query_.where().matches(fields)) return false;
  ++answer_.matched;
  const RowKey key = query_.key_of(id(), fields);
  if (query_.was_shown(key)) return false;
  if (kept_.size() < most()) return true;
  answer_.more = true;
  return query_.is_before(key, kept_.front().key);
}

void Selection::keep(Row row) {
  const auto before = [this](const KeptRow& a, const KeptRow& b) {
    return query_.is_before(a.key, b.key);
  };
  if (kept_.size() == most()) {
    std::pop_heap(kept_.begin(), kept_.end(), before);
    kept_.pop_back();
  }
  RowKey key = query_.key_of(row);
  kept_.push_back({std::move(key), std::move(row)});
  std::push_heap(kept_.begin(), kept_.end(), before);
}

void Selection::offer(Row row) {
  if (wants([&row] { return row.id; }, fields_in(row))) keep(std::move(row));
}

Answer Selection::take() {
  std::sort_heap(kept_.begin(), kept_.end(), [this](const KeptRow& a, const KeptRow& b) {
    return query_.is_before(a.key, b.key);
  });
  for (KeptRow& kept : kept_) answer_.rows.push_back(std::move(kept.row));
  kept_.clear();
  return std::exchange(answer_, Answer());
}

void Merge::add(Answer answer, std::string_view node, std::int64_t pid) {
  const std::size_t most = adds_up(query_.kind()) ? kMaxSums : query_.limit();
  std::optional<std::string> problem;
  if (answer.rows.size() > most) {
    problem = "too many rows";
    answer.rows.resize(most);
  }
  const auto rows = static_cast<std::uint64_t>(answer.rows.size());
  answer.matched = std::max(answer.matched, rows);
  answer_.total = sum_of(answer_.total, std::max(answer.total, answer.matched));
  answer_.matched = sum_of(answer_.matched, answer.matched);
  answer_.more_unanswered = sum_of(answer_.more_unanswered, answer.more_unanswered);
  answer_.more = answer_.more || answer.more;
  for (const Unanswered& source : answer.unanswered)
    add_unanswered(source.node, source.pid, source.why, source.is_silent);
  for (Row& row : answer.rows) {
    if (auto wrong = problem_of(query_.kind(), row))
      problem = std::move(wrong);
    else if (adds_up(query_.kind()))
      add_up(std::move(row));
    else
      add_row(std::move(row));
  }
  if (problem) add_unanswered(node, pid, "its answer has " + *problem, false);
  cut();
}

void Merge::add_row(Row row) {
  if (!ids_.insert(row.id).second) {  // another source has told of it
    --answer_.total;
    --answer_.matched;
    return;
  }
  RowKey key = query_.key_of(row);
  rows_.push_back({std::move(key), std::move(row)});
}

void Merge::add_up(Row row) {
  const auto known = sums_.find(row.id);
  if (known == sums_.end()) {
    if (sums_.size() < kMaxSums)
      sums_.emplace(row.id, std::move(row));
    else
      answer_.more = true;
    return;
  }
  const auto columns = columns_of(query_.kind());
  for (std::size_t i = 0; i < columns.size(); ++i)
    if (columns[i].kind != FieldKind::text)
      known->second.cells[i] = sum_of(known->second.cells[i], row.cells[i]);
}

void Merge::cut() {
  std::sort(rows_.begin(), rows_.end(),
            [this](const KeptRow& a, const KeptRow& b) { return query_.is_before(a.key, b.key); });
  while (rows_.size() > query_.limit()) {
    ids_.erase(rows_.back().row.id);
    rows_.pop_back();
    answer_.more = true;
  }
}

void Merge::filter_sums() {
  Selection selection(query_, Selection::Of::sums);
  for (auto& [id, row] : sums_) selection.offer(std::move(row));
  Answer found = selection.take();
  answer_.total = found.total;
  answer_.matched = found.matched;
  answer_.rows = std::move(found.rows);
  answer_.more = answer_.more || found.more;
}

Answer Merge::take(std::int64_t now_unix_ns) {
  for (KeptRow& kept : rows_) answer_.rows.push_back(std::move(kept.row));
  rows_.clear();
  if (adds_up(query_.kind()) && place_ == Place::verb) {
    filter_sums();
  } else if (adds_up(query_.kind())) {
    for (auto& [id, row] : sums_) answer_.rows.push_back(std::move(row));
    answer_.total = answer_.matched = answer_.rows.size();
  }
  if (place_ == Place::verb && answer_.more && !answer_.rows.empty())
    answer_.next = query_.after(query_.key_of(answer_.rows.back()), query_.as_of(now_unix_ns));
  sums_.clear();
  ids_.clear();
  return std::exchange(answer_, Answer());
}

void Merge::add_unanswered(std::string_view node, std::int64_t pid, std::string_view why,
                           bool is_silent) {
  if (answer_.unanswered.size() == kMaxUnanswered)
    answer_.more_unanswered = sum_of(answer_.more_unanswered, 1);
  else
    answer_.unanswered.push_back({std::string(node.substr(0, kMaxIdBytes)), pid,
                                  std::string(why.substr(0, kMaxWhy)), is_silent});
}

}  // namespace troupe::observe
