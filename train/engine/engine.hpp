/// Engine: trains a model of layers in a layout, on this rank.
///
///     Engine engine(models::gpt2(config), {.dp = 2, .zero = 1}, mesh, device, {.rate = 3e-4f});
///     engine.initialize(/*seed=*/1);
///     StepResult result = engine.step(micro_batches, {.rate = cosine_rate(schedule, step)});
///
/// Every rank makes the same calls in the same order. Equal inputs give equal bits; which layouts
/// give the bits of which others stands in the README. Not for several threads at once. An
/// OutOfMemory of any call says the plan: what the layout needs, and which others need less.
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

/// One micro-batch of this rank; borrows its memory, which is the host's.
struct MicroBatch {
  TensorView input;    ///< i32 tokens [batch, time], or what the first layer takes
  TensorView targets;  ///< i32 ids, kernels::kIgnore for none; or of the loss' target_type()
  /// Numbers of its samples in the step's global batch: what dropout depends on. Empty: dp index
  /// after dp index and micro-batch after micro-batch, from the sizes of all of them.
  std::span<const std::int64_t> samples = {};
};

struct StepOptions {
  float rate = -1;  ///< below 0: the optimizer's
};

struct StepResult {
  std::int64_t step = 0;
  double loss = 0;           ///< mean over all targets of all ranks, in nats
  double norm = 0;           ///< of the gradient, before the clip and without the loss scale
  std::int64_t targets = 0;  ///< of all ranks
  /// False: the norm was not finite, and nothing was changed but an f16 run's loss scale.
  bool applied = true;
  double scale = 1;  ///< the loss scale of this step: 1 but in f16
};

/// What a step did on this rank, for tests and for the line of progress. Forward and backward count
/// the waits inside of them; those for other stages are apart.
struct StepTrace {
  Duration forward{}, backward{}, exposed{};  ///< exposed: waited for reductions after backward
  Duration bubble{};                          ///< in sends to other stages and receives from them
  std::int64_t bytes_reduced = 0, bytes_before_end = 0;  ///< submitted; before backward had ended
};

class TROUPE_API Engine {
 public:
  /// Takes the model; the mesh and the device must outlive it. Throws InvalidArgument, one sentence
  /// that says what to change, for a layout that the model or the mesh does not fit; OutOfMemory
  /// with the plan of what would fit.
  Engine(Model model, const Layout& layout, collective::Mesh& mesh, kernels::Device& device,
         const OptimizerOptions& optimizer);
  /// Waits for what the device and the mesh still do with the engine's memory, within the mesh's
  /// timeouts. The mesh may go right after it, on one rank before the others.
  ~Engine();

  /// Initial weights: a function of the seed alone, the same in every layout.
  void initialize(std::uint64_t seed);
  /// One step over the micro-batches of all ranks. Every rank has as many (Layout::micro); one may
  /// be empty (batch 0). Ranks of one dp index get the same micro-batches, on every stage. Blocks; a
  /// wait for another rank has the communicator's timeout.
  ///
  /// Throws before anything has changed, on all ranks: InvalidArgument when inputs of a rank do not
  /// fit the model (the others name the rank), when ranks of one dp index got different ones or any
  /// two ranks different options, when no rank has a sample or every target is ignored, and when
  /// the loss is not finite (in f16 too: a smaller loss scale would not mend it, so the scale
  /// stays); OutOfMemory when this rank has no room for the activations, and InvalidArgument on the
  /// others. The engine goes on after these. Any other exception (a rank that is missing, a token outside the vocabulary) stops it: it ends the
  /// group, so that no rank waits, and every later call throws Unavailable with the reason. Then
  /// make a new engine over a new mesh and restore a snapshot.
  StepResult step(std::span<const MicroBatch> micros, const StepOptions& options = {});
  /// Mean loss over the batches of all ranks, without dropout; changes nothing. Ranks may have
  /// different numbers of batches. Errors as step().
  double evaluate(std::span<const MicroBatch> micros);
  /// What the loss layer would compare with targets (logits), of the layout's type, for one input of
  /// this rank; lasts until the next call of step(), evaluate() or predict(). Every rank of a layout
  /// with zero = 3, tp > 1 or pp > 1 calls it, those of one dp index with the same input, and each
  /// has the result; errors as step(). In other layouts it is this rank's call alone, and no error
  /// of it stops the engine.
  TensorView predict(const TensorView& input);

  /// Steps that were applied, those of a restored snapshot counted in.
  std::int64_t steps() const noexcept;
  const Index& index() const noexcept;
  const Layout& layout() const noexcept;
  const Model& model() const noexcept;
  const collective::Mesh& mesh() const noexcept;
  kernels::Device& device() const noexcept;
  const StepTrace& trace() const noexcept;
  /// Bytes of this rank: the store's, and activations.
  struct Bytes {
    Store::Bytes store;
    std::int64_t activations = 0;
  };
  Bytes bytes() const noexcept;

  /// The state by tensor in f32, whole tensors whatever the layout and its type, with step and
  /// seed, and the loss scale of an f16 run: every rank calls it. The rank `root` of the mesh has
  /// the result, or all have with -1; on others it has no tensors. Throws InvalidArgument on all
  /// ranks, naming the tensor, when one that tensor parallelism replicates is not the same on two
  /// ranks; the engine goes on.
  Snapshot snapshot(int root = -1);
  /// Every rank calls it with the same state, which may come from another layout and type. Without a
  /// loss scale an f16 run begins with the first one. It takes the place of initialize(). Throws
  /// InvalidArgument on all ranks, naming the tensor, when names, shapes or types of any rank's
  /// snapshot differ, or when ranks have different ones; then nothing has changed. Reads the
  /// snapshot twice.
  void restore(const Snapshot& snapshot);
  /// The same from memory of somebody else, without a copy of whole tensors.
  void restore(const SnapshotView& snapshot);
  /// XXH64 over the XXH64 of each tensor's weights in the order of the index; equal on all ranks,
  /// in all layouts. Every rank calls it; errors as snapshot().
  std::uint64_t weights_hash();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace troupe::train
