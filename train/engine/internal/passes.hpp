/// Passes: forward and backward of micro-batches through the stages of a rank, with the gathers
/// of weights and the reductions of gradients.
#pragma once

#include "troupe/train/engine/engine.hpp"
#include "troupe/train/engine/internal/parts.hpp"
#include "troupe/train/engine/internal/plan.hpp"
#include "troupe/train/engine/internal/reductions.hpp"

#include <list>
#include <span>
#include <vector>

namespace troupe::train::internal {

/// One micro-batch in a pass. `plan` is null for an empty micro-batch: the rank then takes part
/// in the communication alone.
struct Pass {
  const PassPlan* plan = nullptr;
  TensorView input;
  TensorView targets;
  std::span<const std::int64_t> samples = {};
  std::size_t first_loss = 0;  ///< index of its first loss in Passes::losses()
};

/// Values that are the same in all passes of a step.
struct PassTerms {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t targets = 1;  ///< counted targets of the whole step
  double scale = 1;          ///< the loss scale, by which the gradient is multiplied
};

/// A micro-batch at one of the rank's stages.
struct Turn {
  const Pass& pass;
  std::size_t stage = 0;  ///< index among the rank's stages, from 0
  int micro = 0;
  Place place;

  const StagePlan& plan() const { return pass.plan->stages[stage]; }
};

/// Selects the parts of a backward pass, and says whether the gradients of the stage or of the
/// whole rank are complete after it.
struct Backward {
  bool input = true, weights = true;
  bool ends_stage = false, ends_rank = false;
};

class Passes {
 public:
  explicit Passes(Parts& parts);

  /// Makes room in the arena for these micro-batches, as many as are live at one time.
  /// Invalidates the arena's contents. Throws InvalidArgument for inputs that the model does not
  /// accept, and OutOfMemory.
  std::vector<Pass> prepare(std::span<const MicroBatch> micros, PassMode mode);

  /// Call it before the first of `passes` passes.
  void begin(const PassTerms& terms, PassMode mode, int passes);
  /// Walks forward once while layers write their initial weights.
  void initialize(const PassTerms& terms);
  /// Runs the stage forward. On the last stage, fills losses() or prediction_of().
  void forward(const Turn& turn);
  /// Runs the stage backward. Call it after forward() of the same micro-batch and stage.
  void backward(const Turn& turn, const Backward& how);

  /// Returns where the regions of a live micro-batch of a stage lie.
  Place place_of(const Slots& slots, std::size_t stage, int micro) const;
  /// Returns the memory of the prediction: where the last stage writes it, or where other ranks
  /// receive it.
  TensorView prediction_of(const Pass& pass) const;

  /// Returns the loss of every row of the last prepare(); valid once the device's queue has been
  /// synchronised. Empty on ranks without the last stage.
  std::span<const float> losses() const noexcept { return losses_.all; }
  Reductions& reductions() noexcept { return reductions_; }
  /// Bytes of reductions since begin(): all of them, and those submitted before backward had
  /// ended.
  std::int64_t submitted() const noexcept { return reductions_.submitted(); }
  std::int64_t before_end() const noexcept { return before_end_; }
  std::int64_t arena_bytes() const noexcept { return arena_.bytes(); }

 private:
  const PassPlan& plan_for(const Spec& in, PassMode mode);
  Run run_of(const Turn* turn, const Targets* targets) const;
  TensorView input_of(const Turn& turn, int layer) const;
  /// Calls f(run, turn) with the inputs and targets copied to the device, if the micro-batch has
  /// any.
  template <class F>
  void on_device(const Turn& turn, F&& f);
  void run_forward(const Run& run, const Turn& turn, int layer, bool again);
  void run_backward(const Run& run, const Turn& turn, int layer, const Backward& how);
  void keep_losses(const Turn& turn);
  /// Grows the device memory for copies of inputs or targets; the CPU needs none.
  void make_room(kernels::Memory& staging, std::int64_t bytes);
  TensorView copy_of(const TensorView& values, kernels::Memory& staging);

  /// The owner of the saved memory that layers with full recompute share.
  struct Shared {
    int micro = -1, layer = -1;
  };

  /// Losses on the host; pinned memory when the device is not the CPU. With pinned memory the
  /// host does not wait for the copy. Waiting could deadlock: the device may wait for ranks that
  /// wait for an operation which this host has not started yet.
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
