#include "troupe/train/layers/parts/linear.hpp"

#include "troupe/train/internal/reject.hpp"

namespace troupe::train::parts {

using kernels::Gemm;
using kernels::Op;

void Linear::declare(Index& index, int unit, const std::string& name) {
  declare(index, unit, name, {config_.out, config_.in});
}

void Linear::declare(Index& index, int unit, const std::string& name, const Shape& weight) {
  weight_ = index.add(unit, name + ".weight", weight, Group::decay);
  if (config_.bias) bias_ = index.add(unit, name + ".bias", {config_.out}, Group::no_decay);
}

void Linear::tie(Index& index, int unit, TensorId tensor) {
  const Shape want{config_.out, config_.in};
  if (!(index[tensor].global == want))
    internal::reject("a matrix " + want.text() + " cannot share the weights of " +
                     index[tensor].name + " " + index[tensor].global.text());
  config_.bias = false;
  weight_ = index.tie(unit, tensor);
  tied_ = true;
}

void Linear::initialize(const Run& run, const Tensors& w) const {
  if (!tied_) fill_normal(run, w, weight_, config_.deviation);
  if (config_.bias) fill_value(run, w, bias_, 0.0f);
}

void Linear::forward(const Run& run, const Tensors& w, const Rows& x, const Rows& y,
                     const Forward& options) const {
  run.k().gemm(run.queue(), Gemm{.type = run.type,
                                 .c_type = run.type,
                                 .b_op = Op::transpose,
                                 .m = x.rows,
                                 .n = config_.out,
                                 .k = config_.in,
                                 .a = x.data,
                                 .lda = x.stride,
                                 .b = w[weight_].data,
                                 .ldb = config_.in,
                                 .beta = options.add ? 1.0f : 0.0f,
                                 .c = y.data,
                                 .ldc = y.stride,
                                 .bias = config_.bias ? w[bias_].data : nullptr,
                                 .activation = options.activation,
                                 .aux = options.aux});
}

void Linear::backward_input(const Run& run, const Tensors& w, const Rows& dy, const Rows& dx,
                            const Backward& options) const {
  run.k().gemm(run.queue(), Gemm{.type = run.type,
                                 .c_type = run.type,
                                 .m = dy.rows,
                                 .n = config_.in,
                                 .k = config_.out,
                                 .a = dy.data,
                                 .lda = dy.stride,
                                 .b = w[weight_].data,
                                 .ldb = config_.in,
                                 .beta = options.add ? 1.0f : 0.0f,
                                 .c = dx.data,
                                 .ldc = dx.stride,
                                 .activation = options.activation,
                                 .aux = options.aux,
                                 .activation_backward = options.activation != Activation::none});
}

void Linear::backward_weight(const Run& run, const Tensors& g, const Rows& dy,
                             const Rows& x) const {
  run.k().gemm(run.queue(), Gemm{.type = run.type,
                                 .c_type = gradient_type(run.type),
                                 .a_op = Op::transpose,
                                 .m = config_.out,
                                 .n = config_.in,
                                 .k = dy.rows,
                                 .a = dy.data,
                                 .lda = dy.stride,
                                 .b = x.data,
                                 .ldb = x.stride,
                                 .beta = 1.0f,
                                 .c = g[weight_].data,
                                 .ldc = config_.in});
  if (!config_.bias) return;
  run.k().column_sum(run.queue(), {.type = run.type,
                                   .rows = dy.rows,
                                   .columns = config_.out,
                                   .in = dy.data,
                                   .out = g[bias_].data});
}

double Linear::flops(std::int64_t rows) const noexcept {
  return 2.0 * static_cast<double>(rows) * static_cast<double>(config_.in) *
         static_cast<double>(config_.out);
}

}  // namespace troupe::train::parts
