/// A small GPT (Radford et al. 2019): token and position embedding, pre-norm blocks, a final norm,
/// and an output layer that shares the token embedding's weights.
///
///     Gpt model({.vocabulary = 256, .context = 64, .layers = 4, .heads = 4, .channels = 128},
///               /*seed=*/1);
///     model.zero_gradients();
///     double loss = model.forward_backward(batch);  // nats per token; gradients add up
///     optimizer.update(model.map(), model.parameters(), model.gradients(), {.rate = 1e-3f});
///
/// Not for several threads at once: activations live in the model.
#pragma once

#include "troupe/train/layers.hpp"
#include "troupe/train/parameters.hpp"
#include "troupe/train/text.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

namespace troupe::train {

struct GptConfig {
  std::int64_t vocabulary = 256;
  std::int64_t context = 64;  ///< longest row
  std::int64_t layers = 4;
  std::int64_t heads = 4;
  std::int64_t channels = 128;
  bool bias = true;        ///< in linear layers and norms
  bool recompute = false;  ///< keep only each block's input and run its forward again in backward:
                           ///< less memory, a third more time, the same bits
};

/// The tensors of such a model and their places, without memory for them. Throws InvalidArgument
/// like the constructor of Gpt.
TROUPE_API ParameterMap parameters_of(const GptConfig& config, const BucketOptions& buckets = {});

/// Called in backward, on the calling thread, as soon as all gradients of a bucket are complete;
/// buckets come in ascending order, each once.
using BucketReady = std::function<void(int bucket)>;

/// Losses of the targets of a batch that are not kernels::kIgnore, in nats. Sums of several batches
/// or ranks add up; a mean of their means would weigh their targets unequally.
struct LossSum {
  double sum = 0;
  std::int64_t count = 0;
  double mean() const noexcept { return count == 0 ? 0.0 : sum / static_cast<double>(count); }
};

/// One micro-batch of a step, on one of the ranks that share the step.
struct StepPart {
  /// What the sum of the losses is divided by for the gradients: the targets of the whole step,
  /// over all micro-batches and ranks. 0: those of this batch.
  std::int64_t targets = 0;
  /// No micro-batch of this step follows on this rank.
  bool last = true;
  BucketReady on_ready = {};  ///< called with the last micro-batch only
};

class TROUPE_API Gpt {
 public:
  /// Weights are a function of (seed, tensor name, element): normal with deviation 0.02, the
  /// projections into the residual stream divided by sqrt(2 * layers). Throws InvalidArgument when
  /// a size is not positive or past 2^20, or heads does not divide channels.
  explicit Gpt(const GptConfig& config, std::uint64_t seed = 0, const BucketOptions& buckets = {});
  Gpt(Gpt&&) noexcept;
  Gpt& operator=(Gpt&&) noexcept;
  ~Gpt();

  /// Mean loss over the targets that are not kernels::kIgnore, in nats; 0 when there are none.
  /// Throws InvalidArgument for tokens outside the vocabulary or rows longer than the context.
  double loss(const Batch& batch) { return loss_sum(batch).mean(); }
  /// The same as a sum and a count.
  LossSum loss_sum(const Batch& batch);
  /// Adds d(sum of losses) / part.targets to the gradients. Ranks with unequal shares or
  /// micro-batches get the exact gradient of the step's mean loss when their gradients are summed:
  /// part.targets is then counted_targets() summed over all of them, before the first backward.
  /// A batch of no rows adds nothing, and still reports every bucket. The gradients are complete
  /// after the last part: the shared embedding has one from the output layer and one from the
  /// input, which are added once. Throws as loss().
  LossSum accumulate(const Batch& batch, const StepPart& part);
  /// Mean loss, and adds weight * d(loss) to the gradients, as a step of one part. With
  /// micro-batches, weight is their share of the batch.
  double forward_backward(const Batch& batch, float weight = 1.0f,
                          const BucketReady& on_ready = {});
  /// The logits that follow the last of these tokens (at most the last `context` count).
  std::span<const float> next_logits(std::span<const std::int32_t> tokens);

  std::span<float> parameters() noexcept { return parameters_; }
  std::span<const float> parameters() const noexcept { return parameters_; }
  std::span<float> gradients() noexcept { return gradients_; }
  void zero_gradients();
  /// The gradients of one bucket, for a reduction.
  std::span<float> gradients(int bucket);

  const ParameterMap& map() const noexcept;
  const GptConfig& config() const noexcept { return config_; }
  std::int64_t parameter_count() const noexcept { return map().parameter_count(); }
  /// Bytes of activations kept for backward on a batch of this shape.
  std::int64_t saved_bytes(Extent extent) const noexcept;
  /// Floating-point operations of one forward and backward over this many tokens (6 per weight and
  /// token, and attention's 12 * channels * context per layer).
  double training_flops(double tokens) const noexcept;

  /// The weights and what they are, for a checkpoint. Those of another model are refused at the
  /// next use, by InvalidArgument, which names the first tensor that differs.
  friend auto fields(Gpt& m) { return std::tie(m.tensors_, m.parameters_); }
  friend auto fields(const Gpt& m) { return std::tie(m.tensors_, m.parameters_); }

 private:
  friend ParameterMap parameters_of(const GptConfig& config, const BucketOptions& buckets);
  struct Layers;
  struct Activations;
  class BucketCounter;
  void check(const Batch& batch) const;
  /// Fills the activations up to the logits.
  void forward(const std::int32_t* tokens, Extent extent);
  LossSum run_backward(const Batch& batch, std::int64_t counted, float scale, bool last,
                       const BucketReady& on_ready);
  void backward(const std::int32_t* tokens, Extent extent, BucketCounter* ready);
  void add_head_gradient();

  GptConfig config_;
  std::unique_ptr<Layers> layers_;
  std::unique_ptr<Activations> activations_;
  std::vector<std::string> tensors_;  // of parameters_: "transformer.wte.weight [256, 64]"
  std::vector<float> parameters_, gradients_;
  std::vector<float> head_gradient_;  // of the shared embedding as output layer
  bool head_waits_ = false;           // it is not in gradients_ yet
};

struct GenerateOptions {
  float temperature = 0.8f;  ///< 0: always the likeliest token
  int top_k = 0;             ///< sample among the k likeliest only; 0: all
  std::uint64_t seed = 0;
};

/// Continues a text of bytes by `count` bytes; returns the continuation. The model's vocabulary
/// must be at least 256; bytes beyond are never drawn. An empty prompt counts as a newline. Equal
/// for equal weights, prompt and seed. Cost: one forward pass of `context` tokens a byte.
TROUPE_API std::string generate(Gpt& model, const std::string& prompt, int count,
                                const GenerateOptions& options = {});

/// Mean loss over a dataset's held-out windows, evenly spread, at most max_windows of them.
TROUPE_API double held_out_loss(Gpt& model, const TextDataset& data, std::uint64_t max_windows);

}  // namespace troupe::train
