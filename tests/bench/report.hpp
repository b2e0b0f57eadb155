/// What a benchmark says: rows of a value, its floor and its goal, as a table and as JSON.
///
///     Series s{.name = "task_sync", .unit = "us", .goal = at_most(Of::ratio, 10)};
///     s.add(value, floor);                                  // once a round
///     print_table(judge(s)); write_json(rows, machine, build, file);
///
/// A round measures the floor and troupe one after the other, or in slices by turns; the ratio is
/// the median of the rounds' ratios, so that a slow minute of the machine does not count for one
/// side only.
#pragma once

#include "measure.hpp"

#include <optional>
#include <string>
#include <vector>

namespace troupe::bench {

/// What a row must reach.
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

/// A floor that spreads more than this within every round, and from round to round, makes its rows
/// noisy.
inline constexpr double kCalm = 0.10;

/// The rounds of one row.
struct Series {
  std::string name;
  std::string placement;
  std::string unit;
  Goal goal;
  std::vector<double> values;
  std::vector<double> floors;  ///< of the same round; empty: no floor
  std::vector<double> ratios;  ///< of the same round; empty: of each value to its floor
  /// What says how calm the machine was, once a round: the row's own floor when the goal is a ratio
  /// to it, else the placement's round trip.
  std::vector<double> watched;
  double calmest = 1e9;  ///< the smallest spread of it within a round
};

struct Judged {
  Row row;
  Goal goal;
  bool noisy = false;
  std::optional<bool> pass;  ///< none: no goal, or noisy
};
/// Medians of the rounds. The spread is that of the ratio where that is what must reach something,
/// else of the value. Precondition: at least one value; as many floors as values, or none; as many
/// ratios as floors, or none.
Judged judge(const Series& series);

/// Whether more than a tenth of the rows are noisy: then the run says nothing.
bool too_noisy(const std::vector<Judged>& rows) noexcept;

/// "ratio <= 10"; empty without a goal.
std::string text_of(const Goal& goal);
std::string to_report(const std::vector<Judged>& rows);
/// {"machine": {…}, "build": {…}, "rows": […]}
std::string to_report_json(const std::vector<Judged>& rows);

}  // namespace troupe::bench
