/// Reports: puts the reports of a gang's ranks together. A plain state machine.
///
///     Reports reports(2, "accuracy", MetricReduce::mean);
///     reports.reported(0, at, metrics);
///     reports.reported(1, at, others);
///     while (auto complete = reports.next()) judge(complete->metrics);
///
/// A report of rank 0 is complete once every other rank has reported the same step, passed that
/// place of the loop without a report, or ended. A rank that never reports therefore delays
/// nothing.
#pragma once

#include "troupe/train/detail/gang.hpp"
#include "troupe/train/fit.hpp"

#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace troupe::train::internal {

/// Returns the values reduced to one. The mean of equal values is exactly that value.
double reduced(const std::vector<double>& values, MetricReduce how);

class Reports {
 public:
  struct Complete {
    Metrics metrics;              ///< rank 0's, with the loss and the named metric reduced
    std::optional<double> value;  ///< the named metric, if some rank reported it
  };

  Reports(int ranks, std::string metric, MetricReduce how);
  void reported(int rank, Position at, const Metrics& metrics);
  /// Records that the rank is at `now`. All reports that it made before have been recorded.
  void passed(int rank, Position now);
  void over(int rank);
  /// Returns whether rank 0 has a report of that step which is not complete.
  bool awaits(long step) const;
  /// Returns where rank 0 made its oldest incomplete report; nothing when there is none.
  std::optional<Position> open() const;
  /// Returns whether that report waits for this rank.
  bool waits_for(int rank) const;
  /// Returns the next complete report of rank 0, in the order in which rank 0 made them.
  std::optional<Complete> next();

 private:
  struct One {
    Position at;
    Metrics metrics;
  };
  struct Rank {
    std::deque<One> reports;
    Position now;
    bool over = false;
  };
  static bool waits_for(const Rank& rank, const One& report);
  /// Drops reports of the rank that belong to no report of rank 0.
  static void drop_older(Rank& rank, const One& report);
  std::optional<double> value_in(const Metrics& metrics) const;

  std::vector<Rank> ranks_;
  std::string metric_;
  MetricReduce how_;
};

}  // namespace troupe::train::internal
