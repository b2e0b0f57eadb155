#include "troupe/train/layers/parts/linear.hpp"

#include "troupe/train/internal/reject.hpp"

namespace troupe::train::parts {

using kernels::Gemm;
using kernels::Op;

namespace {

/// Sizes of this rank's part of the matrix.
struct Sizes {
  std::int64_t out = 0, in = 0;
  explicit Sizes(const TensorPlace& weight)
      : out(weight.size(0)), in(weight.local.count() / weight.local[0]) {}
};

}  // namespace

TensorShard Linear::shard(const Index& index, const Layout& layout) const {
  switch (config_.split) {
    case Split::outputs:
      return config_.padded ? divided_padded(index, layout, 0)
                            : divided(index, layout, 0, config_.groups);
    case Split::inputs: return divided(index, layout, 1);
    case Split::none: break;
  }
  return of_own_rows(layout);
}

void Linear::declare(Index& index, int unit, const std::string& name, const Layout& layout) {
  const TensorShard part = shard(index, layout);
  weight_ = index.add(unit, name + ".weight", {config_.out, config_.in}, Group::decay, part);
  if (!config_.bias) return;
  const bool whole = config_.split == Split::inputs;
  bias_ = index.add(unit, name + ".bias", {config_.out}, Group::no_decay,
                    whole ? of_own_rows(layout) : part);
}

void Linear::declare(Index& index, int unit, const std::string& name, const Shape& weight) {
  weight_ = index.add(unit, name + ".weight", weight, Group::decay);
  if (config_.bias) bias_ = index.add(unit, name + ".bias", {config_.out}, Group::no_decay);
}

void Linear::tie(Index& index, int unit, TensorId tensor, const Layout& layout) {
  const Shape want{config_.out, config_.in};
  const TensorPlace& place = index[tensor];
  if (!(place.global == want))
    internal::reject("a matrix " + want.text() + " cannot share the weights of " + place.name +
                     " " + place.global.text());
  if (!(place.shard == shard(index, layout)))
    internal::reject("a matrix " + want.text() + " cannot share the weights of " + place.name +
                     ", which tensor-parallel ranks divide in another way");
  config_.bias = false;
  weight_ = index.tie(unit, tensor);
  tied_ = true;
}

bool Linear::adds_bias(const Tensors& w) const {
  return config_.bias && (config_.split != Split::inputs || w.place(weight_).shard.index == 0);
}

void Linear::initialize(const Run& run, const Tensors& w) const {
  if (!tied_) fill_normal(run, w, weight_, config_.deviation);
  if (config_.bias) fill_value(run, w, bias_, 0.0f);
}

void Linear::forward(const Run& run, const Tensors& w, const Rows& x, const Rows& y,
                     const Forward& options) const {
  const Sizes sizes(w.place(weight_));
  run.k().gemm(run.queue(), Gemm{.type = run.type,
                                 .c_type = run.type,
                                 .b_op = Op::transpose,
                                 .m = x.rows,
                                 .n = sizes.out,
                                 .k = sizes.in,
                                 .a = x.data,
                                 .lda = x.stride,
                                 .b = w[weight_].data,
                                 .ldb = sizes.in,
                                 .beta = options.add ? 1.0f : 0.0f,
                                 .c = y.data,
                                 .ldc = y.stride,
                                 .bias = adds_bias(w) ? w[bias_].data : nullptr,
                                 .activation = options.activation,
                                 .aux = options.aux});
}

void Linear::backward_input(const Run& run, const Tensors& w, const Rows& dy, const Rows& dx,
                            const Backward& options) const {
  const Sizes sizes(w.place(weight_));
  run.k().gemm(run.queue(), Gemm{.type = run.type,
                                 .c_type = run.type,
                                 .m = dy.rows,
                                 .n = sizes.in,
                                 .k = sizes.out,
                                 .a = dy.data,
                                 .lda = dy.stride,
                                 .b = w[weight_].data,
                                 .ldb = sizes.in,
                                 .beta = options.add ? 1.0f : 0.0f,
                                 .c = dx.data,
                                 .ldc = dx.stride,
                                 .activation = options.activation,
                                 .aux = options.aux,
                                 .activation_backward = options.activation != Activation::none});
}

void Linear::backward_weight(const Run& run, const Tensors& g, const Rows& dy,
                             const Rows& x) const {
  const Sizes sizes(g.place(weight_));
  run.k().gemm(run.queue(), Gemm{.type = run.type,
                                 .c_type = gradient_type(run.type),
                                 .a_op = Op::transpose,
                                 .m = sizes.out,
                                 .n = sizes.in,
                                 .k = dy.rows,
                                 .a = dy.data,
                                 .lda = dy.stride,
                                 .b = x.data,
                                 .ldb = x.stride,
                                 .beta = 1.0f,
                                 .c = g[weight_].data,
                                 .ldc = sizes.in});
  if (!config_.bias) return;
  TensorView rows(dy.data, run.type, {dy.rows, sizes.out});
  if (config_.split == Split::inputs) rows = own_rows(run, rows);
  run.k().column_sum(run.queue(), {.type = run.type,
                                   .rows = rows.rows(),
                                   .columns = sizes.out,
                                   .in = rows.data,
                                   .out = g[bias_].data});
}

double Linear::flops(std::int64_t rows) const noexcept {
  return 2.0 * static_cast<double>(rows) * static_cast<double>(config_.in) *
         static_cast<double>(config_.out);
}

}  // namespace troupe::train::parts
