/// The rows that answer a question: one source filters, counts, sorts and cuts its own, and Merge
/// joins the answers of several sources. Plain state machines.
///
///     Selection selection(query);                            // at a process, an agent, control
///     for (const Task& task : tasks)
///       if (selection.wants(id_of(task), fields_of(task))) selection.keep(row_of(task));
///     Merge merge(query, Merge::Place::verb);                // at an agent, then at the verb
///     merge.add(selection.take());
///     merge.add_unanswered("node-1", 31, "no answer in 1 s");
///     Answer answer = merge.take(now_unix_ns);
#pragma once

#include "troupe/runtime/observe/question.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::observe {

/// A source whose rows are missing.
struct Unanswered {
  std::string node;
  std::int64_t pid = 0;  ///< 0: the node as a whole
  std::string why;
  bool is_silent = true;  ///< false: it has told a part, or has ended. Answers do not carry it.
};
inline constexpr std::size_t kMaxUnanswered = 256;
inline constexpr std::size_t kMaxSums = 4096;  ///< functions of a source, and of all

struct Answer {
  std::uint64_t total = 0;    ///< rows of the kind
  std::uint64_t matched = 0;  ///< of these, the rows that the filter finds, on all pages
  std::vector<Row> rows;      ///< of this page, in order
  std::vector<Unanswered> unanswered;
  std::uint64_t more_unanswered = 0;  ///< sources beyond kMaxUnanswered
  bool more = false;                  ///< rows behind these match, too
  std::string next;                   ///< `after` of the next page; empty: this is the last one
};

/// A row with its place in the order.
struct KeptRow {
  RowKey key;
  Row row;
};

/// Keeps the first rows of a walk, at most as many as the question's limit. Rows of functions are
/// all kept, up to kMaxSums, because the filter needs their sums.
class Selection {
 public:
  /// sums: rows of functions, added up over all sources, so that the filter may look at them.
  enum class Of : std::uint8_t { rows, sums };
  /// The query must outlive the selection.
  explicit Selection(const Query& query, Of of = Of::rows) : query_(query), of_(of) {}

  /// Counts a row. Returns whether the caller must give it to keep() next. Asks for the id of a
  /// row that the filter finds, so that a walk over a million rows makes few texts.
  bool wants(const std::function<std::string()>& id, const RowFields& fields);
  void keep(Row row);
  /// Counts a row that is there already, and keeps it if it is wanted.
  void offer(Row row);
  /// Counts a row of which the caller knows that the filter does not find it.
  void pass_over() noexcept { ++answer_.total; }
  /// Returns the answer. The selection is then empty.
  Answer take();

 private:
  std::size_t most() const noexcept {
    return of_ == Of::rows && adds_up(query_.kind()) ? kMaxSums : query_.limit();
  }

  const Query& query_;
  const Of of_;
  Answer answer_;
  std::vector<KeptRow> kept_;  // a heap: the last row of the order is in front
};

/// Joins answers to one question. A row that two answers hold counts once; `total` and `matched`
/// count a row behind the cut of both twice.
class Merge {
 public:
  /// verb: the last merge, which filters sums and makes the cursor.
  enum class Place : std::uint8_t { agent, verb };
  /// The query must outlive the merge.
  Merge(const Query& query, Place place) : query_(query), place_(place) {}

  /// Adds the answer of a source. A row of a wrong form is dropped, and the source is listed as
  /// unanswered with the reason.
  void add(Answer answer, std::string_view node = {}, std::int64_t pid = 0);
  void add_unanswered(std::string_view node, std::int64_t pid, std::string_view why,
                      bool is_silent = true);
  /// Returns the joined answer; the merge is then empty. Unix time in nanoseconds.
  Answer take(std::int64_t now_unix_ns);

 private:
  void add_up(Row row);
  void add_row(Row row);
  /// Sorts the rows and cuts them to the limit.
  void cut();
  void filter_sums();

  const Query& query_;
  const Place place_;
  Answer answer_;
  std::vector<KeptRow> rows_;
  std::map<std::string, Row> sums_;  // by function
  std::set<std::string> ids_;        // of rows_
};

}  // namespace troupe::observe
