/// Linear: y = x W^T + b, W [out, in], with what comes before or after in the same product.
///
///     Linear up({.in = c, .out = 4 * c});
///     up.declare(index, unit, "h.0.mlp.c_fc");
///     up.forward(run, w, x, y, {.activation = Activation::gelu, .aux = sum});
///
/// A part of layers: it holds tensor ids and sizes, no values. Calls enqueue on run.queue().
///
/// Several ranks divide W by its outputs or by its inputs (Split). Divided by outputs, y has this
/// rank's columns, and dx is its part of a sum; divided by inputs, x has this rank's columns, and y
/// is its part of a sum. The caller brings rows together before and sums after: gather() and sum()
/// of parallel.hpp.
#pragma once

#include "troupe/train/layers/parts/parallel.hpp"

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

/// How tensor-parallel ranks divide a matrix.
enum class Split : std::uint8_t {
  none,     ///< all have the matrix; each multiplies its own rows
  outputs,  ///< and the bias
  inputs,   ///< all have the bias; the first adds it, so that the sum has it once
};

struct LinearConfig {
  std::int64_t in = 0, out = 0;  ///< of the whole
  bool bias = true;
  float deviation = 0.02f;  ///< of the initial weights; biases are 0
  Split split = Split::none;
  int groups = 1;       ///< of the outputs that are divided each: 3 for query, key and value
  bool padded = false;  ///< the ranks need not divide `out`
};

class TROUPE_API Linear {
 public:
  explicit Linear(const LinearConfig& config) : config_(config) {}
  /// Adds `name`.weight and, with a bias, `name`.bias.
  void declare(Index& index, int unit, const std::string& name, const Layout& layout = {});
  /// The same with a weight of another shape of out * in elements: a convolution's.
  void declare(Index& index, int unit, const std::string& name, const Shape& weight);
  /// Uses another unit's matrix [out, in]; has no bias then. Throws InvalidArgument for a tensor of
  /// another shape, or divided in another way.
  void tie(Index& index, int unit, TensorId tensor, const Layout& layout = {});
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
  /// g(W) += dy^T x, g(b) += column sums of dy. With a bias, rows of dy lie one behind another.
  /// Where rows are divided and W by its inputs, dy has all rows, and g(b) gets this rank's.
  void backward_weight(const Run& run, const Tensors& g, const Rows& dy, const Rows& x) const;

  const LinearConfig& config() const noexcept { return config_; }
  /// Of all ranks.
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
