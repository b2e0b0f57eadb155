/// Linear: y = x W^T + b with W [out, in], optionally fused with an activation or a sum.
///
///     Linear up({.in = c, .out = 4 * c});
///     up.declare(index, unit, "h.0.mlp.c_fc");
///     up.forward(run, w, x, y, {.activation = Activation::gelu, .aux = sum});
///
/// A part of layers: it holds tensor ids and sizes, but no values. Calls enqueue on run.queue().
///
/// Tensor-parallel ranks may divide W by its outputs or by its inputs (Split). Divided by
/// outputs, y has this rank's columns and dx is its addend of a sum. Divided by inputs, x has
/// this rank's columns and y is its addend of a sum. The caller gathers rows before and sums
/// after, with gather() and sum() of parallel.hpp.
#pragma once

#include "troupe/train/layers/parts/parallel.hpp"

#include <cstdint>
#include <string>

namespace troupe::train::parts {

using kernels::Activation;

/// Returns the type of weight gradients and statistics for activations of a type: f64 for f64,
/// else f32.
constexpr DType gradient_type(DType type) noexcept {
  return type == DType::f64 ? DType::f64 : DType::f32;
}

/// Rows of a matrix, which may be a range of columns of a wider one.
struct Rows {
  void* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t stride = 0;  ///< elements from one row to the next

  Rows() = default;
  Rows(void* memory, std::int64_t count, std::int64_t step) noexcept
      : data(memory), rows(count), stride(step) {}
  Rows(const TensorView& view) noexcept : Rows(view.data, view.rows(), view.columns()) {}
  /// Returns the same rows from a later column on.
  Rows from(std::int64_t column, DType type) const noexcept {
    return {static_cast<std::byte*>(data) + column * kernels::size_of(type), rows, stride};
  }
};

/// How tensor-parallel ranks divide a matrix.
enum class Split : std::uint8_t {
  none,     ///< no division: all have the matrix, and each multiplies its own rows
  outputs,  ///< outputs are divided, and the bias with them
  inputs,   ///< inputs are divided; all have the bias, and the first rank adds it once
};

struct LinearConfig {
  std::int64_t in = 0, out = 0;  ///< sizes of the whole matrix
  bool bias = true;
  float deviation = 0.02f;  ///< of the initial weights; biases are 0
  Split split = Split::none;
  int groups = 1;       ///< groups of outputs, each of which is divided: 3 for query, key and value
  bool padded = false;  ///< `out` need not be a multiple of the ranks
};

class TROUPE_API Linear {
 public:
  explicit Linear(const LinearConfig& config) : config_(config) {}
  /// Adds `name`.weight and, with a bias, `name`.bias.
  void declare(Index& index, int unit, const std::string& name, const Layout& layout = {});
  /// Like declare() above, with a weight of another shape with out * in elements, as for a
  /// convolution.
  void declare(Index& index, int unit, const std::string& name, const Shape& weight);
  /// Uses another unit's matrix [out, in], without a bias. Throws InvalidArgument for a tensor of
  /// another shape, or with another division.
  void tie(Index& index, int unit, TensorId tensor, const Layout& layout = {});
  /// Writes the initial weights. Does nothing for a tied matrix.
  void initialize(const Run& run, const Tensors& w) const;

  struct Forward {
    Activation activation = Activation::none;
    void* aux = nullptr;  ///< receives the sum before the activation; rows as y
    bool add = false;     ///< add to y, before the activation
  };
  void forward(const Run& run, const Tensors& w, const Rows& x, const Rows& y,
               const Forward& options) const;
  void forward(const Run& run, const Tensors& w, const Rows& x, const Rows& y) const {
    forward(run, w, x, y, Forward());
  }

  struct Backward {
    Activation activation = Activation::none;  ///< the activation that made x
    void* aux = nullptr;                       ///< the activation's input; rows as dx
    bool add = false;                          ///< add to dx
  };
  /// Computes dx = dy W, then multiplies by the derivative of the activation.
  void backward_input(const Run& run, const Tensors& w, const Rows& dy, const Rows& dx,
                      const Backward& options) const;
  void backward_input(const Run& run, const Tensors& w, const Rows& dy, const Rows& dx) const {
    backward_input(run, w, dy, dx, Backward());
  }
  /// Computes g(W) += dy^T x and g(b) += column sums of dy. With a bias, rows of dy must be
  /// contiguous. When rows are divided over ranks and W by its inputs, dy has all rows, and g(b)
  /// gets only this rank's.
  void backward_weight(const Run& run, const Tensors& g, const Rows& dy, const Rows& x) const;

  const LinearConfig& config() const noexcept { return config_; }
  /// Floating-point operations of forward on all ranks.
  double flops(std::int64_t rows) const noexcept;
  TensorId weight() const noexcept { return weight_; }

 private:
  TensorShard shard(const Index& index, const Layout& layout) const;
  bool adds_bias(const Tensors& w) const;

  LinearConfig config_;
  TensorId weight_ = -1, bias_ = -1;
  bool tied_ = false;
};

}  // namespace troupe::train::parts
