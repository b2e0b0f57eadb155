#include "troupe/train/layers/embedding.hpp"

#include "troupe/train/layers/internal/common.hpp"

namespace troupe::train::layers {

Embedding::Embedding(std::string name, const EmbeddingConfig& config)
    : Layer(std::move(name)), config_(config), dropout_(this->name() + ".drop", config.dropout) {
  if (config_.vocabulary < 1 || config_.channels < 1 || config_.context < 0)
    internal::reject(this->name() + ": the sizes of an embedding must be positive");
}

void Embedding::declare(Index& index, int unit, const Layout& layout) {
  internal::refuse_tensor_parallel(*this, layout);
  const std::int64_t channels = config_.channels;
  tokens_ = index.add(unit, name() + "." + config_.tokens + ".weight",
                      {config_.vocabulary, channels}, Group::decay);
  if (config_.context > 0)
    positions_ = index.add(unit, name() + "." + config_.positions + ".weight",
                           {config_.context, channels}, Group::decay);
}

void Embedding::initialize(const Run& run, const Tensors& w) const {
  fill_normal(run, w, tokens_, config_.deviation);
  if (config_.context > 0) fill_normal(run, w, positions_, config_.deviation);
}

Need Embedding::need(const Spec& in, const Layout& layout) const {
  const bool fits = in.type == DType::i32 && in.shape.rank() == 2 &&
                    (config_.context == 0 || in.shape[1] <= config_.context);
  if (!fits)
    internal::reject_input(*this, in,
                           config_.context == 0
                               ? "i32 [batch, time]"
                               : "i32 [batch, time <= " + std::to_string(config_.context) + "]");
  const Spec out{layout.compute, {in.shape[0], in.shape[1], config_.channels}};
  Carve carry;
  if (dropout_.may_be_on()) carry.take(out.type, out.shape);
  return {.out = out, .carry = carry.bytes()};
}

kernels::Embedding Embedding::describe(const Run& run, const TensorView& x) const {
  return {.type = run.type,
          .rows = x.count(),
          .time = x.shape[1],
          .columns = config_.channels,
          .tokens = x.as<std::int32_t>(),
          .table_rows = config_.vocabulary};
}

void Embedding::forward(const Run& run, const Tensors& w, TensorView x, TensorView y, TensorView,
                        TensorView) const {
  internal::check_ids(*this, run, x, 0, config_.vocabulary);
  kernels::Embedding embedding = describe(run, x);
  embedding.table = w[tokens_].data;
  embedding.positions = config_.context > 0 ? w[positions_].data : nullptr;
  embedding.out = y.data;
  run.k().embedding(run.queue(), embedding);
  if (dropout_.is_on(run)) dropout_.apply(run, y, y, x.shape[1]);
}

void Embedding::backward_input(const Run& run, const Tensors&, TensorView dy, TensorView x,
                               TensorView, TensorView carry, TensorView, TensorView) const {
  if (!dropout_.is_on(run)) return;
  dropout_.apply(run, dy, Carve(carry).take(run.type, dy.shape), x.shape[1]);
}

void Embedding::backward_weight(const Run& run, const Tensors& g, TensorView dy, TensorView x,
                                TensorView, TensorView carry, TensorView) const {
  kernels::Embedding embedding = describe(run, x);
  embedding.dout = dropout_.is_on(run) ? Carve(carry).take(run.type, dy.shape).data : dy.data;
  embedding.dtable = g[tokens_].data;
  embedding.dpositions = config_.context > 0 ? g[positions_].data : nullptr;
  run.k().embedding_backward(run.queue(), embedding);
}

double Embedding::flops(const Spec&) const {
  return 0;
}

}  // namespace troupe::train::layers
