/// The reports of a gang's ranks, put together. A plain state machine.
///
///     Reports reports(2, "accuracy", MetricReduce::mean);
///     reports.reported(0, at, metrics);
///     reports.reported(1, at, others);
///     while (auto complete = reports.next()) judge(complete->metrics);
///
/// A report of rank 0 is complete when every other rank has reported the same step, has come past
/// that place of the loop without a report, or has ended: ranks that do not report cost no wait.
#pragma once

#include "troupe/train/detail/gang.hpp"
#include "troupe/train/fit.hpp"

#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace troupe::train::internal {

/// Equal values give that value exactly.
double reduced(const std::vector<double>& values, MetricReduce how);

class Reports {
 public:
  struct Complete {
    Metrics metrics;              ///< rank 0's, the loss and the named metric reduced
    std::optional<double> value;  ///< of the named metric, if some rank reported it
  };

  Reports(int ranks, std::string metric, MetricReduce how);
  void reported(int rank, Position at, const Metrics& metrics);
  /// Everything that the rank did before it came here has been told.
  void passed(int rank, Position now);
  void over(int rank);
  /// Whether a report of that step of rank 0 is not complete.
  bool awaits(long step) const;
  /// Where rank 0 made the report that the others hold back; nothing when no report is open.
  std::optional<Position> open() const;
  /// Whether the open report waits for this rank.
  bool waits_for(int rank) const;
  /// The next complete report of rank 0, in their order.
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
  /// Drops what no report of rank 0 will ask for.
  static void drop_older(Rank& rank, const One& report);
  std::optional<double> value_in(const Metrics& metrics) const;

  std::vector<Rank> ranks_;
  std::string metric_;
  MetricReduce how_;
};

}  // namespace troupe::train::internal
