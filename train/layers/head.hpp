/// Losses that end a model: LmHead for language models, SoftmaxLoss for classifiers. Both return
/// one loss for each row, in nats. Ignored targets (kernels::kIgnore) have loss 0 and gradient 0.
///
///     LmHead head("transformer.ln_f", {.vocabulary = 65, .channels = 128,
///                                      .tied_to = "transformer.wte.weight"});
///
/// The gradient is that of sum(y) * run.targets->scale / run.targets->total. forward() prepares
/// it when run.training is true. On the CPU forward() throws InvalidArgument, naming the first
/// target outside the classes.
#pragma once

#include "troupe/train/layers/parts/norm.hpp"

namespace troupe::train::layers {

struct LmHeadConfig {
  std::int64_t vocabulary = 0;
  std::int64_t channels = 0;
  bool rms = false;  ///< RMS norm instead of layer norm
  bool bias = true;  ///< of the norm
  float epsilon = 1e-5f;
  /// Name of the tensor [vocabulary, channels] that also serves as projection; empty: the layer
  /// has a projection of its own, `projection`.
  std::string tied_to = {};
  std::string projection = "lm_head";  ///< name of its own projection
  float deviation = 0.02f;
};

/// Final norm, projection to the vocabulary, and cross entropy. Maps [batch, time, channels] to
/// losses [batch, time], f32 or f64; targets are i32 [batch, time]. The layer's name is the
/// norm's. Saves batch * time * vocabulary numbers: the logits, which their gradient overwrites.
///
/// Under tensor parallelism ranks divide the vocabulary, rounded up, and each keeps the logits of
/// its part, without padding. For the losses ranks gather three numbers for each row, and every
/// rank gets all losses. With Layout::sequence the input is this rank's rows.
class TROUPE_API LmHead final : public Layer {
 public:
  LmHead(std::string name, const LmHeadConfig& config);

  /// Throws InvalidArgument when the index has no tensor `tied_to` yet, or one of another shape.
  void declare(Index& index, int unit, const Layout& layout) override;
  void initialize(const Run& run, const Tensors& w) const override;
  Need need(const Spec& in, const Layout& layout) const override;
  void forward(const Run& run, const Tensors& w, TensorView x, TensorView y, TensorView saved,
               TensorView temporary) const override;
  void backward_input(const Run& run, const Tensors& w, TensorView dy, TensorView x,
                      TensorView saved, TensorView carry, TensorView temporary,
                      TensorView dx) const override;
  void backward_weight(const Run& run, const Tensors& g, TensorView dy, TensorView x,
                       TensorView saved, TensorView carry, TensorView temporary) const override;
  double flops(const Spec& in) const override;
  PassExchanges exchanges(const Spec& in, const Layout& layout) const override;
  bool is_loss() const noexcept override { return true; }
  void check_targets(const Spec& in, const TensorView& targets) const override;
  /// Returns the need of predict(): logits [batch, time, vocabulary], on every rank.
  Need prediction_need(const Spec& in, const Layout& layout) const override;
  void predict(const Run& run, const Tensors& w, TensorView x, TensorView y,
               TensorView temporary) const override;

 private:
  struct Saved;
  struct Stats;
  /// Computes all losses from this rank's logits, whose gradient overwrites them when the run
  /// trains.
  void divided_losses(const Run& run, const TensorPlace& projection, const TensorView& logits,
                      const TensorView& losses, const TensorView& temporary) const;
  /// Writes the norm of all rows of x.
  void norm_rows(const Run& run, const Tensors& w, const TensorView& x, const TensorView& normed,
                 const TensorView& statistics) const;
  LmHeadConfig config_;
  parts::Norm norm_;
  parts::Linear projection_;
};

/// Cross entropy of logits [rows, classes], without weights. Losses are [rows], targets i32
/// [rows]. Replicated under tensor parallelism.
class TROUPE_API SoftmaxLoss final : public Layer {
 public:
  using Layer::Layer;
  void declare(Index& index, int unit, const Layout& layout) override;
  void initialize(const Run& run, const Tensors& w) const override;
  Need need(const Spec& in, const Layout& layout) const override;
  void forward(const Run& run, const Tensors& w, TensorView x, TensorView y, TensorView saved,
               TensorView temporary) const override;
  void backward_input(const Run& run, const Tensors& w, TensorView dy, TensorView x,
                      TensorView saved, TensorView carry, TensorView temporary,
                      TensorView dx) const override;
  void backward_weight(const Run& run, const Tensors& g, TensorView dy, TensorView x,
                       TensorView saved, TensorView carry, TensorView temporary) const override;
  double flops(const Spec& in) const override;
  bool is_loss() const noexcept override { return true; }
  void check_targets(const Spec& in, const TensorView& targets) const override;
};

}  // namespace troupe::train::layers
