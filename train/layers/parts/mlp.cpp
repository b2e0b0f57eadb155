#include "troupe/train/layers/parts/mlp.hpp"

#include "troupe/train/internal/reject.hpp"

namespace troupe::train::parts {
namespace {

MlpConfig checked(MlpConfig c) {
  internal::require(c.channels > 0 && c.inner > 0, "an MLP's sizes must be positive");
  return c;
}

MlpConfig without_bias(MlpConfig c) {
  c.bias = false;
  return checked(c);
}

Linear inward(const MlpConfig& c) {
  return Linear({.in = c.channels,
                 .out = c.inner,
                 .bias = c.bias,
                 .deviation = c.deviation,
                 .split = Split::outputs});
}

Linear outward(const MlpConfig& c) {
  return Linear({.in = c.inner,
                 .out = c.channels,
                 .bias = c.bias,
                 .deviation = c.residual_deviation,
                 .split = Split::inputs});
}

/// Inner channels of one rank.
std::int64_t inner_columns(const MlpConfig& c, const Pass& pass) {
  return c.inner / pass.tp;
}

Shape inner_shape(const MlpConfig& c, const Pass& pass) {
  return {pass.rows(), inner_columns(c, pass)};
}

Shape two_inner_shape(const MlpConfig& c, const Pass& pass) {
  return {pass.rows(), 2 * inner_columns(c, pass)};
}

}  // namespace

void check(const MlpConfig& c, const std::string& name, const Layout& layout) {
  if (c.inner % layout.tp != 0)
    internal::reject(name + ": " + std::to_string(layout.tp) +
                     " tensor-parallel ranks cannot divide its " + std::to_string(c.inner) +
                     " inner channels: choose a tp that divides them");
}

Mlp::Saved::Saved(Carve& carve, const MlpConfig& c, const Pass& pass)
    : up(carve.take(pass.type, inner_shape(c, pass))),
      gelu(carve.take(pass.type, inner_shape(c, pass))) {}

Mlp::Carry::Carry(Carve& carve, const MlpConfig& c, const Pass& pass)
    : dup(carve.take(pass.type, inner_shape(c, pass))) {}

Mlp::Mlp(const MlpConfig& config)
    : config_(checked(config)), up_(inward(config_)), down_(outward(config_)) {}

void Mlp::declare(Index& index, int unit, const std::string& name, const Layout& layout) {
  check(config_, name, layout);
  up_.declare(index, unit, name + ".c_fc", layout);
  down_.declare(index, unit, name + ".c_proj", layout);
}

void Mlp::initialize(const Run& run, const Tensors& w) const {
  up_.initialize(run, w);
  down_.initialize(run, w);
}

void Mlp::forward(const Run& run, const Tensors& w, const TensorView& x, const TensorView& y,
                  bool add, const Saved& saved) const {
  up_.forward(run, w, x, saved.gelu, {.activation = Activation::gelu, .aux = saved.up.data});
  down_.forward(run, w, saved.gelu, y, {.add = add});
}

void Mlp::backward_input(const Run& run, const Tensors& w, const TensorView& dy, const Saved& saved,
                         const Carry& carry, const TensorView&, const TensorView& dx) const {
  down_.backward_input(run, w, dy, carry.dup,
                       {.activation = Activation::gelu, .aux = saved.up.data});
  up_.backward_input(run, w, carry.dup, dx);
}

void Mlp::backward_weight(const Run& run, const Tensors& g, const TensorView& dy,
                          const TensorView& x, const Saved& saved, const Carry& carry) const {
  down_.backward_weight(run, g, dy, saved.gelu);
  up_.backward_weight(run, g, carry.dup, x);
}

SwiGlu::Saved::Saved(Carve& carve, const MlpConfig& c, const Pass& pass)
    : in(carve.take(pass.type, two_inner_shape(c, pass))),
      gated(carve.take(pass.type, inner_shape(c, pass))) {}

SwiGlu::Carry::Carry(Carve& carve, const MlpConfig& c, const Pass& pass)
    : din(carve.take(pass.type, two_inner_shape(c, pass))) {}

std::int64_t SwiGlu::temporary_bytes(const MlpConfig& c, const Pass& pass) noexcept {
  Carve carve;
  carve.take(pass.type, inner_shape(c, pass));
  return carve.bytes();
}

SwiGlu::SwiGlu(const MlpConfig& config)
    : config_(without_bias(config)),
      gate_(inward(config_)),
      up_(inward(config_)),
      down_(outward(config_)) {}

void SwiGlu::declare(Index& index, int unit, const std::string& name, const Layout& layout) {
  check(config_, name, layout);
  gate_.declare(index, unit, name + ".gate_proj", layout);
  up_.declare(index, unit, name + ".up_proj", layout);
  down_.declare(index, unit, name + ".down_proj", layout);
}

void SwiGlu::initialize(const Run& run, const Tensors& w) const {
  for (const Linear* linear : {&gate_, &up_, &down_}) linear->initialize(run, w);
}

void SwiGlu::forward(const Run& run, const Tensors& w, const TensorView& x, const TensorView& y,
                     bool add, const Saved& saved) const {
  const std::int64_t inner = saved.gated.columns();
  const Rows gate(saved.in), up = gate.from(inner, run.type);
  gate_.forward(run, w, x, gate);
  up_.forward(run, w, x, up);
  run.k().gated_silu(run.queue(), {.type = run.type,
                                   .rows = gate.rows,
                                   .columns = inner,
                                   .gate = gate.data,
                                   .up = up.data,
                                   .row_in = gate.stride,
                                   .out = saved.gated.data});
  down_.forward(run, w, saved.gated, y, {.add = add});
}

void SwiGlu::backward_input(const Run& run, const Tensors& w, const TensorView& dy,
                            const Saved& saved, const Carry& carry, const TensorView& temporary,
                            const TensorView& dx) const {
  const TensorView dgated = Carve(temporary).take(run.type, saved.gated.shape);
  down_.backward_input(run, w, dy, dgated);
  const std::int64_t inner = saved.gated.columns();
  const Rows gate(saved.in), up = gate.from(inner, run.type);
  const Rows dgate(carry.din), dup = dgate.from(inner, run.type);
  run.k().gated_silu_backward(run.queue(), {.type = run.type,
                                            .rows = gate.rows,
                                            .columns = inner,
                                            .gate = gate.data,
                                            .up = up.data,
                                            .row_in = gate.stride,
                                            .dout = dgated.data,
                                            .dgate = dgate.data,
                                            .dup = dup.data});
  gate_.backward_input(run, w, dgate, dx);
  up_.backward_input(run, w, dup, dx, {.add = true});
}

void SwiGlu::backward_weight(const Run& run, const Tensors& g, const TensorView& dy,
                             const TensorView& x, const Saved& saved, const Carry& carry) const {
  const Rows dgate(carry.din);
  down_.backward_weight(run, g, dy, saved.gated);
  gate_.backward_weight(run, g, dgate, x);
  up_.backward_weight(run, g, dgate.from(saved.gated.columns(), run.type), x);
}

double SwiGlu::flops(std::int64_t rows) const noexcept {
  return gate_.flops(rows) + up_.flops(rows) + down_.flops(rows);
}

}  // namespace troupe::train::parts
