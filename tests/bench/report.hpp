/// The report of a benchmark: rows with a value, a floor and a goal, as a table and as JSON.
///
///     Series s{.name = "task_sync", .unit = "us", .goal = at_most(Of::ratio, 10)};
///     s.add(value, floor);                                  // once a round
///     print_table(judge(s)); write_json(rows, machine, build, file);
///
/// A round measures the floor and troupe one after the other, or in alternating slices. The ratio
/// is the median of the rounds' ratios, so a slow phase of the machine affects both sides alike.
#pragma once

#include "measure.hpp"

#include <optional>
#include <string>
#include <vector>

namespace troupe::bench {

/// The bound that a row must meet.
struct Goal {
  enum class Of { none, value, ratio };
  Of of = Of::none;
  bool at_most = true;  ///< else at least
  double limit = 0;
};
constexpr Goal at_most(Goal::Of of, double limit) noexcept {
  return {of, true, limit};
}
constexpr Goal at_least(Goal::Of of, double limit) noexcept {
  return {of, false, limit};
}

/// A floor whose spread exceeds this within every round, and from round to round, makes its rows
/// noisy.
inline constexpr double kCalm = 0.10;

/// All rounds of one row.
struct Series {
  std::string name;
  std::string placement;
  std::string unit;
  Goal goal;
  std::vector<double> values;
  std::vector<double> floors;  ///< by round; empty: no floor
  std::vector<double> ratios;  ///< by round; empty: value / floor of each
  /// Shows how calm the machine was, once per round. It is the row's own floor when the goal is a
  /// ratio to it, and else the placement's round trip.
  std::vector<double> watched;
  double calmest = 1e9;  ///< smallest spread of `watched` within a round
};

struct Judged {
  Row row;
  Goal goal;
  bool noisy = false;
  std::optional<bool> pass;  ///< none without a goal, and for a noisy row
};
/// Computes medians of the rounds. The spread is that of the quantity with a goal: the ratio, or
/// else the value. Precondition: at least one value; as many floors as values, or none; as many
/// ratios as floors, or none.
Judged judge(const Series& series);

/// Returns whether more than a tenth of the rows are noisy. Such a run proves nothing.
bool too_noisy(const std::vector<Judged>& rows) noexcept;

/// "ratio <= 10"; empty without a goal.
std::string text_of(const Goal& goal);
std::string to_report(const std::vector<Judged>& rows);
/// {"machine": {…}, "build": {…}, "rows": […]}
std::string to_report_json(const std::vector<Judged>& rows);

}  // namespace troupe::bench
