/// What the ends of a gang's ranks mean for its run. A plain state machine.
///
///     GangVerdict verdict(3);
///     verdict.returned(1, /*step=*/10);
///     verdict.failed(0, {.step = 11, .error = cancelled, .missed_others = true,
///                        .missed_rank = 1});
///     verdict.end() == GangVerdict::End::error;  // its error names worker 1
///
/// The rules, the strongest first:
///  - what a loop threw by itself, and calls that differ between ranks, end the run with that
///  error;
///  - a rank that no node could ever take ends the run with Infeasible;
///  - a rank that returned before a collective operation of another ends the run; its name and step
///    are what the user reads;
///  - a dead rank, and an error that says that a part of the cluster failed, restart the gang.
#pragma once

#include "troupe/runtime/base/error.hpp"

#include <optional>
#include <string>
#include <vector>

namespace troupe::train::internal {

/// An error that leaves a loop: whether it tells of the cluster and not of the user's program.
bool is_failure_of_cluster(Code code) noexcept;

/// How a loop failed.
struct LoopFailure {
  long step = 0;
  Error error;
  bool missed_others = false;  ///< it comes from a collective operation that others did not finish
  int missed_rank = -1;        ///< who had left before that operation
};

class GangVerdict {
 public:
  enum class End : std::uint8_t {
    open,     ///< not known yet
    done,     ///< every loop returned
    error,    ///< the run ends with error()
    restart,  ///< error() says why
  };

  explicit GangVerdict(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}
  void returned(int rank, long step);
  void failed(int rank, const LoopFailure& failure);
  /// The process or its actor ended.
  void died(int rank, long step, const Error& error);
  /// Ranks that have not ended are not waited for: they may never say anything.
  void stop_waiting() noexcept { waits_ = false; }

  /// Some rank failed or died: the others end soon, too.
  bool troubled() const noexcept { return troubled_; }
  bool over(int rank) const { return ranks_.at(static_cast<std::size_t>(rank)).over; }
  End end() const;
  /// Precondition: end() is error or restart.
  Error error() const;

 private:
  struct Rank {
    bool over = false;
    bool returned = false;
    long step = 0;
  };
  struct Missed {
    int rank = 0;
    LoopFailure failure;
  };
  const Missed* left_behind() const;
  bool all_over() const;

  std::vector<Rank> ranks_;
  std::optional<Error> users_;    // the first that is the user's own
  std::optional<Error> cluster_;  // the first death or failure of the cluster
  std::vector<Missed> missed_;
  bool troubled_ = false;
  bool waits_ = true;
};

}  // namespace troupe::train::internal
