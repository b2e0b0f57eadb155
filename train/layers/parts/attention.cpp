#include "troupe/train/layers/parts/attention.hpp"

#include "troupe/train/internal/reject.hpp"

#include <algorithm>

namespace troupe::train::parts {
namespace {

bool keeps_probabilities(const Pass& pass) {
  return pass.time <= kKeptProbabilities;
}

/// Returns whether backward computes the probabilities again. It uses the kernel of forward on
/// equal queries and keys, so the bits equal those of saved probabilities.
bool makes_again(const Pass& pass) {
  return pass.recompute == Recompute::selective && keeps_probabilities(pass);
}

/// The heads of one rank, and the columns that they take.
struct Heads {
  std::int64_t queries = 0, keys = 0, size = 0;
  Heads(const AttentionConfig& c, const Pass& pass)
      : queries(c.heads / pass.tp), keys(c.kv_heads / pass.tp), size(c.head_size()) {}
  std::int64_t query_columns() const noexcept { return queries * size; }
  std::int64_t key_columns() const noexcept { return keys * size; }
  std::int64_t width() const noexcept { return query_columns() + 2 * key_columns(); }
};

Shape probabilities_shape(const AttentionConfig& c, const Pass& pass) {
  return {pass.batch, Heads(c, pass).queries, pass.time, pass.time};
}

Shape attended_shape(const AttentionConfig& c, const Pass& pass) {
  return {pass.rows(), Heads(c, pass).query_columns()};
}

/// Temporary memory of one call.
struct Scratch {
  TensorView probabilities;  // only with Recompute::selective
  TensorView dattended, attended;
  std::int64_t bytes = 0;

  Scratch(Carve carve, const AttentionConfig& c, const Pass& pass) {
    dattended = carve.take(pass.type, attended_shape(c, pass));
    if (makes_again(pass)) {
      probabilities = carve.take(pass.type, probabilities_shape(c, pass));
      attended = carve.take(pass.type, attended_shape(c, pass));
    }
    bytes = carve.bytes();
  }
};

}  // namespace

void check(const AttentionConfig& c, const std::string& name) {
  const auto require = [&name](bool holds, const char* rule) {
    if (!holds) internal::reject(name + ": " + rule);
  };
  require(c.channels > 0 && c.heads > 0 && c.channels % c.heads == 0, "heads must divide channels");
  require(c.kv_heads > 0 && c.heads % c.kv_heads == 0, "kv_heads must divide heads");
  require(c.rope_theta == 0 || c.head_size() % 2 == 0, "rotary embedding needs an even head size");
  require(c.fused || !c.bias, "separate projections have no biases");
}

void check(const AttentionConfig& c, const std::string& name, const Layout& layout) {
  check(c, name);
  if (c.heads % layout.tp != 0 || c.kv_heads % layout.tp != 0)
    internal::reject(name + ": " + std::to_string(layout.tp) +
                     " tensor-parallel ranks cannot divide its " + std::to_string(c.heads) +
                     " heads and " + std::to_string(c.kv_heads) +
                     " kv_heads: choose a tp that divides both");
  if (layout.tp > 1 && c.fused && c.heads != c.kv_heads)
    internal::reject(name +
                     ": tensor-parallel ranks divide a fused matrix only where kv_heads is "
                     "heads: use separate projections, or tp = 1");
}

Attention::Saved::Saved(Carve& carve, const AttentionConfig& c, const Pass& pass) {
  const Heads heads(c, pass);
  qkv = carve.take(pass.type, {pass.rows(), heads.width()});
  attended = carve.take(pass.type, attended_shape(c, pass));
  if (!keeps_probabilities(pass))
    lse = carve.take(gradient_type(pass.type), {pass.batch, heads.queries, pass.time});
  else if (!makes_again(pass))
    probabilities = carve.take(pass.type, probabilities_shape(c, pass));
}

Attention::Carry::Carry(Carve& carve, const AttentionConfig& c, const Pass& pass)
    : dqkv(carve.take(pass.type, {pass.rows(), Heads(c, pass).width()})) {}

std::int64_t Attention::temporary_bytes(const AttentionConfig& config, const Pass& pass) {
  return Scratch(Carve(), config, pass).bytes;
}

Attention::Attention(const AttentionConfig& config)
    : config_(config),
      out_({.in = config.channels,
            .out = config.channels,
            .bias = config.bias,
            .deviation = config.residual_deviation,
            .split = Split::inputs}) {
  check(config_, "attention");
  const auto add = [this](std::int64_t columns) {
    in_.emplace_back(LinearConfig{.in = config_.channels,
                                  .out = columns,
                                  .bias = config_.bias,
                                  .deviation = config_.deviation,
                                  .split = Split::outputs,
                                  .groups = config_.fused ? 3 : 1});
  };
  add(config_.fused ? config_.width() : config_.channels);
  if (config_.fused) return;
  for (int i = 0; i < 2; ++i) add(config_.kv_heads * config_.head_size());
}

void Attention::declare(Index& index, int unit, const std::string& name, const Layout& layout) {
  check(config_, name, layout);
  if (config_.fused) {
    in_[0].declare(index, unit, name + ".c_attn", layout);
    return out_.declare(index, unit, name + ".c_proj", layout);
  }
  const char* const names[] = {".q_proj", ".k_proj", ".v_proj"};
  for (std::size_t i = 0; i < in_.size(); ++i) in_[i].declare(index, unit, name + names[i], layout);
  out_.declare(index, unit, name + ".o_proj", layout);
}

void Attention::initialize(const Run& run, const Tensors& w) const {
  for (const Linear& linear : in_) linear.initialize(run, w);
  out_.initialize(run, w);
}

std::int64_t Attention::column(std::size_t i, const Pass& pass) const noexcept {
  std::int64_t first = 0;
  for (std::size_t k = 0; k < i; ++k) first += in_[k].config().out / pass.tp;
  return first;
}

kernels::Attention Attention::describe(const Saved& saved, const Pass& pass) const {
  const Rows q(saved.qkv);
  const Heads heads(config_, pass);
  return {.type = pass.type,
          .batch = pass.batch,
          .time = pass.time,
          .heads = heads.queries,
          .kv_heads = heads.keys,
          .head_size = heads.size,
          .q = q.data,
          .k = q.from(heads.query_columns(), pass.type).data,
          .v = q.from(heads.query_columns() + heads.key_columns(), pass.type).data,
          .q_row = q.stride,
          .kv_row = q.stride,
          .out = saved.attended.data,
          .lse = saved.lse.data,
          .probabilities = saved.probabilities.data};
}

void Attention::rotate(const Run& run, const TensorView& qkv, const Pass& pass,
                       bool inverse) const {
  if (config_.rope_theta == 0) return;
  const Heads heads(config_, pass);
  run.k().rope(run.queue(), {.type = pass.type,
                             .rows = pass.rows(),
                             .time = pass.time,
                             .heads = heads.queries + heads.keys,  // keys follow queries
                             .head_size = heads.size,
                             .row = heads.width(),
                             .theta = config_.rope_theta,
                             .inverse = inverse,
                             .x = qkv.data});
}

void Attention::forward(const Run& run, const Tensors& w, const TensorView& x, const TensorView& y,
                        bool add, const Saved& saved, const TensorView& temporary,
                        const Pass& pass) const {
  for (std::size_t i = 0; i < in_.size(); ++i)
    in_[i].forward(run, w, x, Rows(saved.qkv).from(column(i, pass), pass.type));
  rotate(run, saved.qkv, pass, false);
  kernels::Attention core = describe(saved, pass);
  if (makes_again(pass))
    core.probabilities = Scratch(Carve(temporary), config_, pass).probabilities.data;
  run.k().attention(run.queue(), core);
  out_.forward(run, w, saved.attended, y, {.add = add});
}

void Attention::backward_input(const Run& run, const Tensors& w, const TensorView& dy,
                               const Saved& saved, const Carry& carry, const TensorView& temporary,
                               const TensorView& dx, const Pass& pass) const {
  const Scratch scratch(Carve(temporary), config_, pass);
  out_.backward_input(run, w, dy, scratch.dattended);
  kernels::AttentionBackward core{.forward = describe(saved, pass)};
  if (makes_again(pass)) {
    core.forward.probabilities = scratch.probabilities.data;
    kernels::Attention again = core.forward;
    again.out = scratch.attended.data;
    run.k().attention(run.queue(), again);
  }
  const Rows d(carry.dqkv);
  const Heads heads(config_, pass);
  core.dout = scratch.dattended.data;
  core.dq = d.data;
  core.dk = d.from(heads.query_columns(), pass.type).data;
  core.dv = d.from(heads.query_columns() + heads.key_columns(), pass.type).data;
  run.k().attention_backward(run.queue(), core);
  rotate(run, carry.dqkv, pass, true);
  for (std::size_t i = 0; i < in_.size(); ++i)
    in_[i].backward_input(run, w, d.from(column(i, pass), pass.type), dx, {.add = i > 0});
}

void Attention::backward_weight(const Run& run, const Tensors& g, const TensorView& dy,
                                const TensorView& x, const Saved& saved, const Carry& carry,
                                const Pass& pass) const {
  out_.backward_weight(run, g, dy, saved.attended);
  for (std::size_t i = 0; i < in_.size(); ++i)
    in_[i].backward_weight(run, g, Rows(carry.dqkv).from(column(i, pass), run.type), x);
}

double Attention::flops(std::int64_t rows, std::int64_t time) const noexcept {
  double sum = out_.flops(rows) + 4.0 * static_cast<double>(rows) * static_cast<double>(time) *
                                      static_cast<double>(config_.channels);
  for (const Linear& linear : in_) sum += linear.flops(rows);
  return sum;
}

}  // namespace troupe::train::parts
