/// Layers over images [batch, channels, height, width]: Conv2d and MaxPool.
///
///     Conv2d first("conv1", {.in = 1, .out = 8, .kernel = 3, .padding = 1,
///                            .activation = Activation::relu});
#pragma once

#include "troupe/train/layers/parts/linear.hpp"

namespace troupe::train::layers {

using parts::Activation;

struct Conv2dConfig {
  std::int64_t in = 0, out = 0;  ///< channels
  std::int64_t kernel = 3, stride = 1, padding = 0;
  Activation activation = Activation::none;
  bool bias = true;
  float deviation = 0;  ///< of the initial weights; 0: sqrt(2 / (in * kernel^2)) (He et al. 2015)
};

/// Cross-correlation with weights [out, in, kernel, kernel], a bias and an activation, as matrix
/// products over unfolded images (im2col, Chellapilla et al. 2006). Needs in * kernel^2 temporary
/// numbers for each pixel of the output. Unfolds the image again in backward instead of saving
/// it.
class TROUPE_API Conv2d final : public Layer {
 public:
  /// Throws InvalidArgument for sizes below 1, or a negative padding.
  Conv2d(std::string name, const Conv2dConfig& config);

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
  struct Pixels;
  kernels::Im2col describe(const Run& run, const TensorView& x, const void* in, void* out) const;
  void unfold(const Run& run, const TensorView& x, const TensorView& patches) const;
  bool activates() const noexcept { return config_.activation != Activation::none; }
  Conv2dConfig config_;
  parts::Linear linear_;
};

/// Takes the maximum of each window x window pixels. Pixels that fill no window at the edges are
/// ignored.
class TROUPE_API MaxPool final : public Layer {
 public:
  /// Throws InvalidArgument for a window below 1.
  MaxPool(std::string name, std::int64_t window);

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
  kernels::MaxPool describe(const Run& run, const TensorView& x) const;
  std::int64_t window_;
};

}  // namespace troupe::train::layers
