/// Dense and Flatten: layers of a multilayer perceptron.
///
///     Dense hidden("layers.0", {.in = 784, .out = 256, .activation = Activation::relu});
#pragma once

#include "troupe/train/layers/parts/linear.hpp"

namespace troupe::train::layers {

using parts::Activation;

struct DenseConfig {
  std::int64_t in = 0, out = 0;
  Activation activation = Activation::none;
  bool bias = true;
  float deviation = 0;  ///< of the initial weights; 0: sqrt(2 / in) (He et al. 2015)
};

/// Computes y = act(x W^T + b) over the last dimension of x. Replicated under tensor parallelism.
class TROUPE_API Dense final : public Layer {
 public:
  /// Throws InvalidArgument for sizes below 1.
  Dense(std::string name, const DenseConfig& config);

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

 private:
  bool activates() const noexcept { return config_.activation != Activation::none; }
  DenseConfig config_;
  parts::Linear linear_;
};

/// Reshapes [batch, ...] to [batch, product of the other dimensions].
class TROUPE_API Flatten final : public Layer {
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
};

}  // namespace troupe::train::layers
