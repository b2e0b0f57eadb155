/// Processes that make training steps when they are told to.
///
///     StepPeer peer("4x128x64x12", /*threads=*/1, /*first_cpu=*/0);
///     double seconds = peer.measure(/*steps=*/20);      // the median of a step
#pragma once

#include <sys/types.h>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace troupe::bench {

/// A `train_step` beside this program. Ends with its end. Throws std::runtime_error when it does
/// not answer.
class StepPeer {
 public:
  /// `more`: further arguments, micro-batches and mesh. `environment`: "NAME=value" beside the
  /// inherited ones.
  StepPeer(const std::string& shape, int threads, int first_cpu,
           const std::vector<std::string>& more = {},
           const std::vector<std::string>& environment = {});
  StepPeer(const StepPeer&) = delete;
  StepPeer& operator=(const StepPeer&) = delete;
  ~StepPeer();
  void begin(int steps);
  /// Median seconds of a step.
  double end();
  double measure(int steps) {
    begin(steps);
    return end();
  }
  /// Returns when it is ready.
  void await_ready();

 private:
  std::string line();
  pid_t pid_ = -1;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
  bool ready_ = false;
};

/// Ranks of one run, each on a CPU of its own.
class StepRanks {
 public:
  /// `mesh`: like "tp=2", of as many ranks.
  StepRanks(const std::string& shape, int ranks, const std::string& mesh, int micro = 1);
  /// Median seconds of a step of the slowest.
  double measure(int steps);

 private:
  std::vector<std::unique_ptr<StepPeer>> ranks_;
};

}  // namespace troupe::bench
