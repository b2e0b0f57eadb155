/// Linear: y = x W^T + b, W [out, in], with what comes before or after in the same product.
///
///     Linear up({.in = c, .out = 4 * c});
///     up.declare(index, unit, "h.0.mlp.c_fc");
///     up.forward(run, w, x, y, {.activation = Activation::gelu, .aux = sum});
///
/// A part of layers: it holds tensor ids and sizes, no values. Calls enqueue on run.queue().
#pragma once

#include "troupe/train/layers/layer.hpp"

#include <cstdint>
#include <string>

namespace troupe::train::parts {

using kernels::Activation;

/// The type of gradients and statistics beside activations of a type: f32, or f64 for f64.
constexpr DType gradient_type(DType type) noexcept {
  return type == DType::f64 ? DType::f64 : DType::f32;
}

/// Rows of a matrix that may be some columns of a wider one.
struct Rows {
  void* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t stride = 0;  ///< elements from one row to the next

  Rows() = default;
  Rows(void* memory, std::int64_t count, std::int64_t step) noexcept
      : data(memory), rows(count), stride(step) {}
  Rows(const TensorView& view) noexcept : Rows(view.data, view.rows(), view.columns()) {}
  /// The same rows from a later column on.
  Rows from(std::int64_t column, DType type) const noexcept {
    return {static_cast<std::byte*>(data) + column * kernels::size_of(type), rows, stride};
  }
};

struct LinearConfig {
  std::int64_t in = 0, out = 0;
  bool bias = true;
  float deviation = 0.02f;  ///< of the initial weights; biases are 0
};

class TROUPE_API Linear {
 public:
  explicit Linear(const LinearConfig& config) : config_(config) {}
  /// Adds `name`.weight and, with a bias, `name`.bias.
  void declare(Index& index, int unit, const std::string& name);
  /// The same with a weight of another shape of out * in elements: a convolution's.
  void declare(Index& index, int unit, const std::string& name, const Shape& weight);
  /// Uses another unit's matrix [out, in]; has no bias then. Throws InvalidArgument for a tensor of
  /// another shape.
  void tie(Index& index, int unit, TensorId tensor);
  /// Does nothing for a tied matrix.
  void initialize(const Run& run, const Tensors& w) const;

  struct Forward {
    Activation activation = Activation::none;
    void* aux = nullptr;  ///< gets the sum before the activation; rows as y
    bool add = false;     ///< to y, before the activation
  };
  void forward(const Run& run, const Tensors& w, const Rows& x, const Rows& y,
               const Forward& options) const;
  void forward(const Run& run, const Tensors& w, const Rows& x, const Rows& y) const {
    forward(run, w, x, y, Forward());
  }

  struct Backward {
    Activation activation = Activation::none;  ///< that made x
    void* aux = nullptr;                       ///< its input; rows as dx
    bool add = false;                          ///< to dx
  };
  /// dx = dy W, then times the derivative of the activation.
  void backward_input(const Run& run, const Tensors& w, const Rows& dy, const Rows& dx,
                      const Backward& options) const;
  void backward_input(const Run& run, const Tensors& w, const Rows& dy, const Rows& dx) const {
    backward_input(run, w, dy, dx, Backward());
  }
  /// g(W) += dy^T x, g(b) += column sums of dy. With a bias, rows of dy are `out` apart.
  void backward_weight(const Run& run, const Tensors& g, const Rows& dy, const Rows& x) const;

  const LinearConfig& config() const noexcept { return config_; }
  double flops(std::int64_t rows) const noexcept;

 private:
  LinearConfig config_;
  TensorId weight_ = -1, bias_ = -1;
  bool tied_ = false;
};

}  // namespace troupe::train::parts
