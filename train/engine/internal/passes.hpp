/// Forward and backward of micro-batches, with the communication that belongs to them.
#pragma once

#include "troupe/train/engine/engine.hpp"
#include "troupe/train/engine/internal/parts.hpp"
#include "troupe/train/engine/internal/plan.hpp"
#include "troupe/train/engine/internal/reductions.hpp"

#include <list>
#include <span>
#include <vector>

namespace troupe::train::internal {

/// One micro-batch in a pass. Ranks without samples take part in the communication alone: `plan` is
/// null.
struct Pass {
  const PassPlan* plan = nullptr;
  TensorView input;
  TensorView targets;
  std::span<const std::int64_t> samples = {};
};

/// What is the same in all passes of a step.
struct PassTerms {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t targets = 1;  ///< of the whole step
  double scale = 1;          ///< of the gradient
};

class Passes {
 public:
  explicit Passes(Parts& parts);

  /// Makes room for these micro-batches; what lay in the arena is lost. Throws InvalidArgument for
  /// inputs that the model cannot take, OutOfMemory.
  std::vector<Pass> prepare(std::span<const MicroBatch> micros, PassMode mode);

  /// Before the first of `passes` passes.
  void begin(const PassTerms& terms, Walk walk, int passes);
  /// One walk forward in which layers write their initial weights.
  void initialize(const PassTerms& terms);
  /// Its losses are appended to losses().
  void forward(const Pass& pass);
  /// After the forward pass of the same. `last`: the step's last micro-batch.
  void backward(const Pass& pass, bool last);
  /// Up to the last layer, which predicts. The result lasts until the next call of prepare().
  TensorView predict(const Pass& pass);

  /// Loss of every row since begin(), when the device's queue has been synchronised.
  const std::vector<float>& losses() const noexcept { return losses_; }
  Reductions& reductions() noexcept { return reductions_; }
  /// Bytes of reductions since begin(): of all, and of those submitted before backward had ended.
  std::int64_t submitted() const noexcept { return reductions_.submitted(); }
  std::int64_t before_end() const noexcept { return before_end_; }
  std::int64_t arena_bytes() const noexcept { return arena_.bytes(); }

 private:
  const PassPlan& plan_for(const Spec& in, PassMode mode);
  Run run_of(const Pass& pass, const Targets* targets) const;
  TensorView input_of(const Pass& pass, int layer) const;
  void run_forward(const Run& run, const Pass& pass, int layer);
  void run_backward(const Run& run, const Pass& pass, int layer);
  void keep_losses(const Pass& pass);
  /// Memory of the device for copies of inputs or targets; the CPU needs none.
  void make_room(kernels::Memory& staging, std::int64_t bytes);
  TensorView on_device(const TensorView& values, kernels::Memory& staging);

  Parts* parts_;
  Tensors weights_, gradients_;
  Arena arena_;
  Gathers gathers_;
  Reductions reductions_;
  std::vector<int> last_layers_;
  std::list<PassPlan> plans_;
  std::vector<float> losses_;
  PassTerms terms_;
  PassMode mode_ = PassMode::training;
  int shared_saved_of_ = -1;  // the layer whose saved memory lies in the shared place
  std::int64_t before_end_ = 0;
  kernels::Memory input_, target_;  // copies, on devices other than the CPU
};

}  // namespace troupe::train::internal
