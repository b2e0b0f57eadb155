/// Runs a rank's list of a schedule: passes through its stages, and what goes to other stages and
/// comes from them (Huang et al. 2019, Narayanan et al. 2019 and 2021). The plain run is the list F0
/// B0 F1 B1 ... of one stage.
#pragma once

#include "troupe/train/engine/internal/passes.hpp"
#include "troupe/train/engine/internal/ties.hpp"

#include <span>
#include <vector>

namespace troupe::train::internal {

/// All ranks of a pipeline make the same calls with micro-batches of the same shapes. An empty
/// micro-batch passes through the stages without messages. Throws errors of the group and of
/// layers.
class Pipeline {
 public:
  Pipeline(Parts& parts, Passes& passes);

  /// Forward and backward of a step, up to the submission of all reductions. Adds to the trace.
  void step(const PassTerms& terms, const std::vector<Pass>& passes, StepTrace& trace);
  /// Forward alone: losses lie on the last stage's rank.
  void forward(const PassTerms& terms, const std::vector<Pass>& passes);
  /// Of one micro-batch; every rank of the pipeline has the result. No data for an empty one.
  TensorView predict(const PassTerms& terms, const std::vector<Pass>& one);
  Ties& ties() noexcept { return ties_; }

 private:
  struct Walk;
  void run(const std::vector<Action>& list, const std::vector<Pass>& passes, PassMode mode,
           StepTrace& trace);
  void compute(Walk& walk, std::size_t at);
  void transfer(Walk& walk, std::size_t at, std::size_t end);
  void run_forward(const PassTerms& terms, const std::vector<Pass>& passes, PassMode mode);

  Parts* parts_;
  Passes* passes_;
  Ties ties_;
};

}  // namespace troupe::train::internal
