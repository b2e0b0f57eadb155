#include "troupe/train/layers/parts/norm.hpp"

#include "troupe/train/hash.hpp"
#include "troupe/train/internal/reject.hpp"

#include <array>

namespace troupe::train::parts {

Norm::Norm(const NormConfig& config) : config_(config) {
  if (config_.rms) config_.bias = false;
}

void Norm::declare(Index& index, int unit, const std::string& name, const Layout& layout) {
  const Shape shape{config_.channels};
  const TensorShard shard = of_own_rows(layout);
  weight_ = index.add(unit, name + ".weight", shape, Group::no_decay, shard);
  if (config_.bias) bias_ = index.add(unit, name + ".bias", shape, Group::no_decay, shard);
}

void Norm::initialize(const Run& run, const Tensors& w) const {
  fill_value(run, w, weight_, 1.0f);
  if (config_.bias) fill_value(run, w, bias_, 0.0f);
}

TensorView Norm::take_statistics(Carve& carve, DType type, std::int64_t rows) const {
  return carve.take(gradient_type(type), {config_.rms ? 1 : 2, rows});
}

kernels::Norm Norm::describe(const Run& run, const TensorView& x,
                             const TensorView& statistics) const {
  std::byte* first = statistics.as<std::byte>();
  std::byte* last = first + (statistics.bytes() - x.rows() * kernels::size_of(statistics.type));
  return {.type = run.type,
          .rms = config_.rms,
          .epsilon = config_.epsilon,
          .rows = x.rows(),
          .columns = config_.channels,
          .in = x.data,
          .mean = config_.rms ? nullptr : first,
          .rstd = last};
}

void Norm::forward(const Run& run, const Tensors& w, const TensorView& x, const TensorView& y,
                   const TensorView& statistics) const {
  kernels::Norm norm = describe(run, x, statistics);
  norm.weight = w[weight_].data;
  norm.bias = config_.bias ? w[bias_].data : nullptr;
  norm.out = y.data;
  run.k().norm(run.queue(), norm);
}

void Norm::backward_input(const Run& run, const Tensors& w, const TensorView& dy,
                          const TensorView& x, const TensorView& statistics, const TensorView& dx,
                          bool add) const {
  kernels::NormBackward norm{.forward = describe(run, x, statistics)};
  norm.forward.weight = w[weight_].data;
  norm.dout = dy.data;
  norm.din = dx.data;
  norm.add = add;
  run.k().norm_backward_input(run.queue(), norm);
}

void Norm::backward_weight(const Run& run, const Tensors& g, const TensorView& dy,
                           const TensorView& x, const TensorView& statistics) const {
  kernels::NormBackward norm{.forward = describe(run, x, statistics)};
  norm.dout = dy.data;
  norm.dweight = g[weight_].data;
  norm.dbias = config_.bias ? g[bias_].data : nullptr;
  run.k().norm_backward_weight(run.queue(), norm);
}

Dropout::Dropout(std::string name, float p) : name_(std::move(name)), p_(p) {
  if (!(p >= 0.0f && p < 1.0f)) internal::reject(name_ + ": dropout must be in [0, 1)");
}

void Dropout::apply(const Run& run, const TensorView& in, const TensorView& out,
                    std::int64_t time) const {
  const std::int64_t rows = in.rows() * in.parts, batch = time == 0 ? 0 : rows / time;
  if (!run.samples.empty() && static_cast<std::int64_t>(run.samples.size()) != batch)
    internal::reject(name_ + ": dropout needs the numbers of the batch's " + std::to_string(batch) +
                     " samples, not of " + std::to_string(run.samples.size()));
  const std::array key{hash_bytes(name_.data(), name_.size()),
                       static_cast<std::uint64_t>(run.step)};
  run.k().dropout(run.queue(), {.type = run.type,
                                .p = p_,
                                .seed = run.seed,
                                .stream = hash_bytes(key.data(), sizeof key),
                                .rows = in.rows(),
                                .columns = in.columns(),
                                .samples = run.samples.data(),
                                .first_row = in.parts == 1 ? 0 : first_own_row(run, rows),
                                .time = time,
                                .all_columns = in.columns(),
                                .in = in.data,
                                .out = out.data});
}

}  // namespace troupe::train::parts
