/// Embedding: from token ids to rows, with or without learned positions.
///
///     Embedding embedding("transformer", {.vocabulary = 50257, .context = 1024, .channels = 768});
#pragma once

#include "troupe/train/layers/parts/norm.hpp"

namespace troupe::train::layers {

struct EmbeddingConfig {
  std::int64_t vocabulary = 0;
  std::int64_t context = 0;  ///< positions, and the longest row; 0: none, and any length
  std::int64_t channels = 0;
  float dropout = 0;
  float deviation = 0.02f;
  /// Names of the tables, after the layer's own.
  std::string tokens = "wte", positions = "wpe";
};

/// i32 [batch, time] to [batch, time, channels]. It has no input gradient: dx is not written.
/// Tensor-parallel ranks divide the vocabulary, rounded up; the sum of what each looks up is the
/// output, with Layout::sequence this rank's rows of it. All have the positions.
/// On the CPU forward() throws InvalidArgument, naming the first token outside the vocabulary; a
/// device's memory is not read, and gives zero rows for such a token.
class TROUPE_API Embedding final : public Layer {
 public:
  /// Throws InvalidArgument for sizes below 1 (context: below 0), or dropout outside [0, 1).
  Embedding(std::string name, const EmbeddingConfig& config);

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
  bool keeps_saved() const noexcept override { return true; }

 private:
  kernels::Embedding describe(const Run& run, const Tensors& of, const TensorView& x) const;
  /// The output's gradient behind dropout, all rows: dy itself, or carried.
  TensorView gradient(const Run& run, const TensorView& dy, const TensorView& carry) const;
  EmbeddingConfig config_;
  parts::Dropout dropout_;
  TensorId tokens_ = -1, positions_ = -1;
};

}  // namespace troupe::train::layers
