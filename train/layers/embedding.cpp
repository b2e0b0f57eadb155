#include "troupe/train/layers/embedding.hpp"

#include "troupe/train/layers/internal/common.hpp"

namespace troupe::train::layers {

Embedding::Embedding(std::string name, const EmbeddingConfig& config)
    : Layer(std::move(name)), config_(config), dropout_(this->name() + ".drop", config.dropout) {
  if (config_.vocabulary < 1 || config_.channels < 1 || config_.context < 0)
    internal::reject(this->name() + ": the sizes of an embedding must be positive");
}

void Embedding::declare(Index& index, int unit, const Layout& layout) {
  const std::int64_t channels = config_.channels;
  tokens_ =
      index.add(unit, name() + "." + config_.tokens + ".weight", {config_.vocabulary, channels},
                Group::decay, parts::divided_padded(index, layout, 0));
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
  internal::require_even_rows(*this, in.shape, layout);
  const int row_parts = parts::row_parts(layout);
  const Spec out{layout.compute, {in.shape[0], in.shape[1], config_.channels}, row_parts};
  Carve carry, temporary;
  if (dropout_.may_be_on() || row_parts > 1) carry.take(out.type, out.shape);
  if (row_parts > 1) temporary.take(out.type, out.shape);
  return {.out = out, .carry = carry.bytes(), .temporary = temporary.bytes()};
}

kernels::Embedding Embedding::describe(const Run& run, const Tensors& of,
                                       const TensorView& x) const {
  const TensorPlace& tokens = of.place(tokens_);
  return {.type = run.type,
          .rows = x.count(),
          .time = x.shape[1],
          .columns = config_.channels,
          .tokens = x.as<std::int32_t>(),
          .first = tokens.shard.index * tokens.local[0],
          .table_rows = tokens.size(0)};
}

void Embedding::check_input(const TensorView& values) const {
  internal::check_ids(*this, values, 0, config_.vocabulary);
}

void Embedding::forward(const Run& run, const Tensors& w, TensorView x, TensorView y, TensorView,
                        TensorView temporary) const {
  if (run.device.is_cpu()) check_input(x);
  const bool adds_positions = config_.context > 0 && w.place(tokens_).shard.index == 0;
  const TensorView whole = y.parts == 1 ? y : Carve(temporary).take(y.type, y.shape);
  kernels::Embedding embedding = describe(run, w, x);
  embedding.table = w[tokens_].data;
  // Only one rank adds the positions, since the output is a sum over ranks.
  embedding.positions = adds_positions ? w[positions_].data : nullptr;
  embedding.out = whole.data;
  run.k().embedding(run.queue(), embedding);
  parts::sum(run, whole, y);
  if (dropout_.is_on(run)) dropout_.apply(run, y, y, x.shape[1]);
}

TensorView Embedding::gradient(const Run& run, const TensorView& dy,
                               const TensorView& carry) const {
  return dropout_.is_on(run) || dy.parts > 1 ? Carve(carry).take(run.type, dy.shape) : dy;
}

void Embedding::backward_input(const Run& run, const Tensors&, TensorView dy, TensorView x,
                               TensorView, TensorView carry, TensorView, TensorView) const {
  const TensorView whole = gradient(run, dy, carry);
  TensorView own = dy;
  if (dropout_.is_on(run)) {
    own = parts::own_rows(run, whole);
    dropout_.apply(run, dy, own, x.shape[1]);
  }
  parts::gather(run, own, whole);
}

void Embedding::backward_weight(const Run& run, const Tensors& g, TensorView dy, TensorView x,
                                TensorView, TensorView carry, TensorView) const {
  kernels::Embedding embedding = describe(run, g, x);
  embedding.dout = gradient(run, dy, carry).data;
  embedding.dtable = g[tokens_].data;
  embedding.dpositions = config_.context > 0 ? g[positions_].data : nullptr;
  run.k().embedding_backward(run.queue(), embedding);
}

double Embedding::flops(const Spec&) const {
  return 0;
}

PassExchanges Embedding::exchanges(const Spec& in, const Layout& layout) const {
  Spec whole = need(in, layout).out;
  whole.parts = 1;
  return {parts::sum_exchange(layout, whole.bytes()),
          parts::gather_exchange(layout, whole.bytes())};
}

}  // namespace troupe::train::layers
