/// Norm and Dropout: the parts of a block that are not matrix products.
///
///     Norm norm({.channels = c});
///     norm.declare(index, unit, "h.0.ln_1");
///     norm.forward(run, w, x, y, norm.take_statistics(carve, run.type, x.rows()));
#pragma once

#include "troupe/train/layers/parts/linear.hpp"

namespace troupe::train::parts {

struct NormConfig {
  std::int64_t channels = 0;
  bool rms = false;
  bool bias = true;  ///< not with rms
  float epsilon = 1e-5f;
};

/// Layer norm, or RMS norm. Weights begin as 1 and biases as 0, without weight decay. With
/// Layout::sequence it works on this rank's own rows.
class TROUPE_API Norm {
 public:
  explicit Norm(const NormConfig& config);
  void declare(Index& index, int unit, const std::string& name, const Layout& layout = {});
  void initialize(const Run& run, const Tensors& w) const;

  /// Takes memory for each row's mean and reciprocal standard deviation, which backward reads.
  TensorView take_statistics(Carve& carve, DType type, std::int64_t rows) const;
  void forward(const Run& run, const Tensors& w, const TensorView& x, const TensorView& y,
               const TensorView& statistics) const;
  /// Writes dx, or adds to it with `add`.
  void backward_input(const Run& run, const Tensors& w, const TensorView& dy, const TensorView& x,
                      const TensorView& statistics, const TensorView& dx, bool add) const;
  void backward_weight(const Run& run, const Tensors& g, const TensorView& dy, const TensorView& x,
                       const TensorView& statistics) const;

 private:
  kernels::Norm describe(const Run& run, const TensorView& x, const TensorView& statistics) const;
  NormConfig config_;
  TensorId weight_ = -1, bias_ = -1;
};

/// Dropout of the rows of a batch [batch, time], or of this rank's rows where they are divided
/// (TensorView::parts). The mask is a function of (run.seed, the name, run.step, the sample's
/// number, its time, the column).
class TROUPE_API Dropout {
 public:
  Dropout(std::string name, float p);
  bool is_on(const Run& run) const noexcept { return run.training && p_ > 0; }
  /// Returns whether some run may use dropout, so that memory must be reserved.
  bool may_be_on() const noexcept { return p_ > 0; }
  /// Applies the mask; `out` may be `in`. Applied to gradients, it is its own backward. Without
  /// run.samples, samples are numbered from 0. Throws InvalidArgument when run.samples has
  /// another size than the batch.
  void apply(const Run& run, const TensorView& in, const TensorView& out, std::int64_t time) const;

 private:
  std::string name_;
  float p_;
};

}  // namespace troupe::train::parts
