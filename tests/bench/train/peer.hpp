/// Processes that make training steps on command.
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

/// A `train_step` process beside this program. It ends with this object. Functions throw
/// std::runtime_error when it does not answer.
class StepPeer {
 public:
  /// `more` are further arguments: micro-batches and mesh. `environment` adds "NAME=value" to the
  /// inherited variables.
  StepPeer(const std::string& shape, int threads, int first_cpu,
           const std::vector<std::string>& more = {},
           const std::vector<std::string>& environment = {});
  StepPeer(const StepPeer&) = delete;
  StepPeer& operator=(const StepPeer&) = delete;
  ~StepPeer();
  void begin(int steps);
  /// Returns the median seconds of a step.
  double end();
  double measure(int steps) {
    begin(steps);
    return end();
  }
  /// Waits until the process is ready.
  void await_ready();

 private:
  std::string line();
  pid_t pid_ = -1;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
  bool ready_ = false;
};

/// The ranks of one run, each on its own CPU.
class StepRanks {
 public:
  /// `mesh` is a text like "tp=2" with as many ranks.
  StepRanks(const std::string& shape, int ranks, const std::string& mesh, int micro = 1);
  /// Returns the median seconds of a step on the slowest rank.
  double measure(int steps);

 private:
  std::vector<std::unique_ptr<StepPeer>> ranks_;
};

}  // namespace troupe::bench
