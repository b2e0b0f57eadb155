/// Forward and backward of micro-batches through one stage, with the communication of its weights
/// and gradients.
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
  std::size_t first_loss = 0;  ///< of the rank's losses
};

/// What is the same in all passes of a step.
struct PassTerms {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t targets = 1;  ///< of the whole step
  double scale = 1;          ///< of the gradient
};

/// A micro-batch at one of the rank's stages.
struct Turn {
  const Pass& pass;
  std::size_t stage = 0;  ///< of the rank's, from 0
  int micro = 0;
  Place place;

  const StagePlan& plan() const { return pass.plan->stages[stage]; }
};

/// What of a backward pass is done, and whether the stage's or the rank's gradients are whole
/// behind it.
struct Backward {
  bool input = true, weights = true;
  bool ends_stage = false, ends_rank = false;
};

class Passes {
 public:
  explicit Passes(Parts& parts);

  /// Makes room for these micro-batches, as many as live at one time; what lay in the arena is
  /// lost. Throws InvalidArgument for inputs that the model cannot take, OutOfMemory.
  std::vector<Pass> prepare(std::span<const MicroBatch> micros, PassMode mode);

  /// Before the first of `passes` passes.
  void begin(const PassTerms& terms, PassMode mode, int passes);
  /// One walk forward in which layers write their initial weights.
  void initialize(const PassTerms& terms);
  /// On the last stage its losses lie in losses(), or its output is prediction_of().
  void forward(const Turn& turn);
  /// After the forward pass of the same.
  void backward(const Turn& turn, const Backward& how);

  /// The regions of a live micro-batch of a stage.
  Place place_of(const Slots& slots, std::size_t stage, int micro) const;
  /// What the last stage predicts, or where to put it on ranks that do not have that stage.
  TensorView prediction_of(const Pass& pass) const;

  /// Loss of every row of the last prepare(), when the device's queue has been synchronised. None
  /// on ranks without the last stage.
  std::span<const float> losses() const noexcept { return losses_.all; }
  Reductions& reductions() noexcept { return reductions_; }
  /// Bytes of reductions since begin(): of all, and of those submitted before backward had ended.
  std::int64_t submitted() const noexcept { return reductions_.submitted(); }
  std::int64_t before_end() const noexcept { return before_end_; }
  std::int64_t arena_bytes() const noexcept { return arena_.bytes(); }

 private:
  const PassPlan& plan_for(const Spec& in, PassMode mode);
  Run run_of(const Turn* turn, const Targets* targets) const;
  TensorView input_of(const Turn& turn, int layer) const;
  /// Of a micro-batch that is not empty: f(run) with inputs and targets on the device.
  template <class F>
  void on_device(const Turn& turn, F&& f);
  void run_forward(const Run& run, const Turn& turn, int layer, bool again);
  void run_backward(const Run& run, const Turn& turn, int layer, const Backward& how);
  void keep_losses(const Turn& turn);
  /// Memory of the device for copies of inputs or targets; the CPU needs none.
  void make_room(kernels::Memory& staging, std::int64_t bytes);
  TensorView copy_of(const TensorView& values, kernels::Memory& staging);

  /// Whose saved memory lies in the place that layers share.
  struct Shared {
    int micro = -1, layer = -1;
  };

  /// Pinned on a device: the host does not wait for a copy, and so not for ranks that the device
  /// waits for, which may wait for what this host is yet to ask for.
  struct Losses {
    std::vector<float> values;
    kernels::Memory pinned;
    std::span<float> all;
  };
  void make_room_for_losses(std::size_t count);

  Parts* parts_;
  Tensors weights_, gradients_;
  Arena arena_;
  ArenaPlan arena_plan_;
  Gathers gathers_;
  Reductions reductions_;
  std::list<PassPlan> plans_;
  Losses losses_;
  PassTerms terms_;
  PassMode mode_ = PassMode::training;
  Shared shared_;
  std::int64_t before_end_ = 0;
  kernels::Memory input_, target_;  // copies, on devices other than the CPU
};

}  // namespace troupe::train::internal
