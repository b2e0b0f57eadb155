/// Engine: trains a model of layers in a layout. Each rank of the mesh has one.
///
///     Engine engine(models::gpt2(config), {.dp = 2, .zero = 1}, mesh, device, {.rate = 3e-4f});
///     engine.initialize(/*seed=*/1);
///     StepResult result = engine.step(micro_batches, {.rate = cosine_rate(schedule, step)});
///
/// Every rank makes the same calls in the same order. Ranks that wait for each other in different
/// calls end in an InvalidArgument that names both. Equal inputs give equal bits; train/README.md
/// says which layouts give equal bits (TRAIN-31). Use an engine from one thread at a time. The
/// message of any OutOfMemory names the memory that the layout needs, and layouts that need less.
#pragma once

#include "troupe/actors/collective/mesh.hpp"
#include "troupe/kernels/device/device.hpp"
#include "troupe/train/checkpoint/snapshot.hpp"
#include "troupe/train/layers/layer.hpp"
#include "troupe/train/layout.hpp"
#include "troupe/train/optimizers/optimizer.hpp"
#include "troupe/train/params/store.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe::train {

struct StagedState;

/// One micro-batch of this rank. Borrows its memory, which lies on the host.
struct MicroBatch {
  TensorView input;    ///< i32 tokens [batch, time], or values for the first layer
  TensorView targets;  ///< i32 ids, kernels::kIgnore for none; or values of the loss's
                       ///< target_type()
  /// Numbers of its samples in the step's global batch; dropout depends on them. Empty: the
  /// engine numbers samples by dp index, then by micro-batch.
  std::span<const std::int64_t> samples = {};
};

struct StepOptions {
  float rate = -1;  ///< learning rate; below 0: the optimizer's
};

struct StepResult {
  std::int64_t step = 0;
  double loss = 0;           ///< mean over all targets of all ranks, in nats
  double norm = 0;           ///< of the gradient, before clipping and without the loss scale
  std::int64_t targets = 0;  ///< of all ranks
  /// False: the norm was not finite, and nothing changed but an f16 run's loss scale.
  bool applied = true;
  double scale = 1;  ///< the loss scale of this step: 1 except in f16
};

/// Times and bytes of this rank in a step, for tests and progress lines. Forward and backward
/// include the waits within them, but not the waits for other stages.
struct StepTrace {
  Duration forward{}, backward{}, exposed{};  ///< exposed: waits for reductions after backward
  Duration bubble{};                          ///< waits in sends to other stages and receives from
                                              ///< them
  /// Gradient bytes that were submitted for reduction, in all and before backward had ended.
  std::int64_t bytes_reduced = 0, bytes_before_end = 0;
};

class TROUPE_API Engine {
 public:
  /// Takes the model. The mesh and the device must outlive the engine. Throws InvalidArgument,
  /// one sentence that says what to change, when the layout does not fit the model or the mesh.
  /// Throws OutOfMemory with layouts that would fit.
  Engine(Model model, const Layout& layout, collective::Mesh& mesh, kernels::Device& device,
         const OptimizerOptions& optimizer);
  /// Waits until the device and the mesh no longer use the engine's memory, within the mesh's
  /// timeouts. The mesh may be destroyed right after, on one rank before the others.
  ~Engine();

  /// Sets the initial weights: a function of the seed alone, the same in every layout.
  void initialize(std::uint64_t seed);
  /// Runs one training step over the micro-batches of all ranks. Every rank gives Layout::micro
  /// of them; a micro-batch may be empty (batch 0). Ranks of one dp index give the same
  /// micro-batches, on every stage. Blocks; a wait for another rank ends at the communicator's
  /// timeout.
  ///
  /// These errors are thrown on all ranks before anything has changed, and the engine stays
  /// usable:
  ///  - InvalidArgument when an engine has no weights yet, from initialize() or restore();
  ///  - InvalidArgument when inputs of a rank do not fit the model, or a token or a target is
  ///    outside of its vocabulary (other ranks name that rank);
  ///  - InvalidArgument when ranks of one dp index got different micro-batches, or any two ranks
  ///    different options;
  ///  - InvalidArgument when no rank has a sample, or every target is ignored;
  ///  - InvalidArgument when the loss is not finite. In f16 too: a smaller loss scale would not
  ///    help, so the scale stays;
  ///  - OutOfMemory when this rank has no room for the activations, and InvalidArgument on the
  ///    others.
  ///
  /// Any other exception (a missing rank, a layer that throws) stops the engine. It aborts the
  /// group, so that no rank waits, and every later call throws Unavailable with the reason. Make a
  /// new engine over a new mesh then, and restore a snapshot.
  StepResult step(std::span<const MicroBatch> micros, const StepOptions& options = {});
  /// Returns the mean loss over the batches of all ranks, without dropout; changes nothing. Ranks
  /// may have different numbers of batches. Throws like step().
  double evaluate(std::span<const MicroBatch> micros);
  /// Returns the logits that the loss layer would compare with targets, in the layout's type, for
  /// one input of this rank. The result is valid until the next call of step(), evaluate() or
  /// predict().
  ///
  /// With zero = 3, tp > 1 or pp > 1 every rank calls it and gets its result; ranks of one dp
  /// index give the same input, and it throws like step(). In other layouts each rank calls it
  /// for itself, and its errors do not stop the engine. Throws InvalidArgument without weights.
  TensorView predict(const TensorView& input);

  /// Returns the number of applied steps, counting those of a restored snapshot.
  std::int64_t steps() const noexcept;
  const Index& index() const noexcept;
  const Layout& layout() const noexcept;
  const Model& model() const noexcept;
  const collective::Mesh& mesh() const noexcept;
  kernels::Device& device() const noexcept;
  const StepTrace& trace() const noexcept;
  /// Bytes of this rank: those of the store, and activations.
  struct Bytes {
    Store::Bytes store;
    std::int64_t activations = 0;
  };
  Bytes bytes() const noexcept;

  /// Returns the state as whole tensors in f32, in every layout and type, with step and seed, and
  /// the loss scale of an f16 run. Every rank calls it. Only rank `root` of the mesh gets the
  /// tensors, or every rank with -1. Throws InvalidArgument on all ranks, naming the tensor, when
  /// one that tensor parallelism replicates differs between two ranks; the engine stays usable.
  /// Throws InvalidArgument before the first initialize() or restore().
  Snapshot snapshot(int root = -1);
  /// Copies this rank's share of the state, whose parts of all ranks together are a snapshot. Reuses
  /// the memory of `to`. Does not wait for other ranks, except for a gather that has begun. Throws
  /// InvalidArgument before the first initialize() or restore().
  void stage(StagedState& to);
  /// Sets the state, instead of initialize(). Every rank calls it with the same snapshot, which
  /// may come from another layout and type. Without a loss scale in it, an f16 run begins with
  /// the initial one. Without moments in it the optimizer begins with moments of 0, as at step 0,
  /// and rank 0 says so on standard error, once. Throws InvalidArgument on all ranks, naming the
  /// tensor, when names, shapes or types of any rank's snapshot differ from the model's, or when
  /// ranks give different snapshots; nothing has changed then. Reads the snapshot twice.
  void restore(const Snapshot& snapshot);
  /// Like restore() above, from borrowed memory, without a copy of whole tensors. Equal values of
  /// `identity` promise that ranks give equal snapshots, so each reads only its own part of them,
  /// once; 0: nothing is promised.
  void restore(const SnapshotView& snapshot, std::uint64_t identity = 0);
  /// Returns XXH64 over the XXH64 of each tensor's weights, in the order of the index. It is
  /// equal on all ranks and in all layouts. Every rank calls it. Throws like snapshot().
  std::uint64_t weights_hash();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace troupe::train
