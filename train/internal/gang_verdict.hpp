/// GangVerdict: decides from the ends of a gang's ranks whether the run is done, failed or
/// restarts. A plain state machine.
///
///     GangVerdict verdict(3);
///     verdict.returned(1, /*step=*/10);
///     verdict.failed(0, {.step = 11, .error = cancelled, .missed_others = true,
///                        .missed_rank = 1});
///     verdict.end() == GangVerdict::End::error;  // its error names worker 1
///
/// The rules, the strongest first:
///  - an exception that a loop threw by itself, or calls that differ between ranks, end the run
///    with that error;
///  - a rank that no node can ever take ends the run with Infeasible;
///  - a rank that returned before a collective operation of another rank ends the run, and the
///    error names the returned rank and its step;
///  - a dead rank, or an error that reports a failed part of the cluster, restarts the gang.
#pragma once

#include "troupe/runtime/base/error.hpp"

#include <optional>
#include <string>
#include <vector>

namespace troupe::train::internal {

/// Returns whether an error that leaves a loop means a failure of the cluster, and not of the
/// user's program.
bool is_failure_of_cluster(Code code) noexcept;

/// The failure of one loop.
struct LoopFailure {
  long step = 0;
  Error error;
  bool missed_others = false;  ///< from a collective operation that others did not finish
  int missed_rank = -1;        ///< the rank that had left before that operation; -1: none
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
  /// The rank's process or its actor ended.
  void died(int rank, long step, const Error& error);
  /// Stops waiting for ranks that have not ended, since they may never send an event.
  void stop_waiting() noexcept { waits_ = false; }

  /// Returns whether some rank failed or died; the others then end soon, too.
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
  std::optional<Error> users_;    // the first error of the user's program
  std::optional<Error> cluster_;  // the first death or failure of the cluster
  std::vector<Missed> missed_;
  bool troubled_ = false;
  bool waits_ = true;
};

}  // namespace troupe::train::internal
