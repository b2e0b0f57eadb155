/// Embedding: turns token ids into rows of channels, with or without learned positions.
///
///     Embedding embedding("transformer", {.vocabulary = 50257, .context = 1024, .channels = 768});
#pragma once

#include "troupe/train/layers/parts/norm.hpp"

namespace troupe::train::layers {

struct EmbeddingConfig {
  std::int64_t vocabulary = 0;
  std::int64_t context = 0;  ///< learned positions, and the longest row; 0: no positions, and rows
                             ///< of any length
  std::int64_t channels = 0;
  float dropout = 0;
  float deviation = 0.02f;
  /// Names of the two tables, appended to the layer's name.
  std::string tokens = "wte", positions = "wpe";
};

/// Maps i32 [batch, time] to [batch, time, channels]. It has no input gradient and never writes
/// dx. Under tensor parallelism ranks divide the vocabulary, rounded up, and every rank has the
/// positions. The output is the sum of the ranks' look-ups; with Layout::sequence a rank gets its
/// own rows of it. On the CPU forward() throws InvalidArgument, naming the first token outside
/// the vocabulary. On a device it does not check ids, and such a token gives a row of zeros.
class TROUPE_API Embedding final : public Layer {
 public:
  /// Throws InvalidArgument for sizes below 1 (context: below 0), or dropout outside [0, 1).
  Embedding(std::string name, const EmbeddingConfig& config);

  void declare(Index& index, int unit, const Layout& layout) override;
  void initialize(const Run& run, const Tensors& w) const override;
  Need need(const Spec& in, const Layout& layout) const override;
  void check_input(const TensorView& values) const override;
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
  /// Returns the output's gradient before dropout, all rows: dy itself, or the carried memory.
  TensorView gradient(const Run& run, const TensorView& dy, const TensorView& carry) const;
  EmbeddingConfig config_;
  parts::Dropout dropout_;
  TensorId tokens_ = -1, positions_ = -1;
};

}  // namespace troupe::train::layers
