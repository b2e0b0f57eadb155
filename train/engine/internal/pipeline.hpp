/// Pipeline: interprets a rank's list of a schedule. It runs passes through the rank's stages and
/// transfers activations and gradients between stages (Huang et al. 2019, Narayanan et al. 2019
/// and 2021). A run without pipeline parallelism is the list F0 B0 F1 B1 ... of one stage.
#pragma once

#include "troupe/train/engine/internal/passes.hpp"
#include "troupe/train/engine/internal/ties.hpp"

#include <span>
#include <vector>

namespace troupe::train::internal {

/// All ranks of a pipeline make the same calls with micro-batches of the same shapes. An empty
/// micro-batch is not transferred between stages. Calls throw errors of the group and of layers.
class Pipeline {
 public:
  Pipeline(Parts& parts, Passes& passes);

  /// Runs forward and backward of a step, until all reductions are submitted. Adds times to the
  /// trace.
  void step(const PassTerms& terms, const std::vector<Pass>& passes, StepTrace& trace);
  /// Runs forward passes alone. The losses lie on the last stage's rank.
  void forward(const PassTerms& terms, const std::vector<Pass>& passes);
  /// Predicts one micro-batch. Every rank of the pipeline gets the result, which has no data for
  /// an empty micro-batch.
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
