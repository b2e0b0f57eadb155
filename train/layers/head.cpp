#include "troupe/train/layers/head.hpp"

#include "troupe/kernels/cross_entropy/cross_entropy.hpp"
#include "troupe/train/layers/internal/common.hpp"

#include <algorithm>

namespace troupe::train::layers {
namespace {

using parts::gradient_type;
using parts::Rows;

/// Throws unless there is one target for each row. On the CPU each must be a class or ignored.
void require_targets(const Layer& layer, const Run& run, std::int64_t rows, std::int64_t classes) {
  internal::require(run.targets != nullptr, "a loss needs Run::targets");
  const TensorView& targets = run.targets->values;
  if (targets.type != DType::i32 || targets.count() != rows)
    internal::reject(layer.name() + " needs " + std::to_string(rows) + " i32 targets, not " +
                     std::string(kernels::name_of(targets.type)) + " " + targets.shape.text());
  if (run.device.is_cpu()) internal::check_ids(layer, targets, kernels::kIgnore, classes);
}

/// Describes contiguous rows of logits; there may be no columns.
kernels::CrossEntropy describe(const Run& run, const TensorView& logits, const TensorView& losses) {
  const std::int64_t classes = logits.columns();
  return {.type = logits.type,
          .rows = losses.count(),
          .classes = classes,
          .row = classes,
          .logits = logits.data,
          .targets = run.targets->values.as<std::int32_t>(),
          .losses = losses.data,
          .gradient = run.training,
          .scale = run.targets->scale / static_cast<double>(run.targets->total)};
}

/// Points the description to statistics [3, rows].
void point_to(kernels::CrossEntropy& o, const TensorView& stats) {
  std::byte* first = stats.as<std::byte>();
  const std::int64_t bytes = stats.bytes() / 3;
  o.maximum = first;
  o.sum = first + bytes;
  o.target_logit = first + 2 * bytes;
}

/// Returns the rows of logits [batch, time, columns]; there may be no columns.
Rows rows_of(const TensorView& logits) {
  return {logits.data, logits.shape[0] * logits.shape[1], logits.columns()};
}

/// Returns the columns of a rank's logits with padding, the same on all ranks.
std::int64_t local_columns(std::int64_t vocabulary, const Layout& layout) {
  return (vocabulary + layout.tp - 1) / layout.tp;
}

}  // namespace

struct LmHead::Saved {
  TensorView statistics, normed, logits;
  Saved(Carve& carve, const LmHead& head, const Spec& in, const Layout& layout)
      : statistics(head.norm_.take_statistics(carve, in.type, in.count() / in.shape[2])),
        normed(carve.take(in.type, in.shape)),
        logits(carve.take(
            in.type, {in.shape[0], in.shape[1], local_columns(head.config_.vocabulary, layout)})) {}
  /// Returns the logits without the columns of padding.
  TensorView logits_of(const TensorPlace& projection) const {
    TensorView mine = logits;
    mine.shape.set(2, projection.size(0));
    return mine;
  }
};

/// Maximum, sum and target's logit of every row: of each rank (`each`), and of all ranks combined
/// (`all`).
struct LmHead::Stats {
  TensorView each, all;
  Stats(Carve& carve, const Spec& in, const Layout& layout) {
    if (layout.tp == 1) return;
    const std::int64_t rows = in.shape[0] * in.shape[1];
    each = carve.take(gradient_type(in.type), {layout.tp, 3, rows});
    all = carve.take(gradient_type(in.type), {3, rows});
  }
};

LmHead::LmHead(std::string name, const LmHeadConfig& config)
    : Layer(std::move(name)),
      config_(config),
      norm_({.channels = config.channels,
             .rms = config.rms,
             .bias = config.bias,
             .epsilon = config.epsilon}),
      projection_({.in = config.channels,
                   .out = config.vocabulary,
                   .bias = false,
                   .deviation = config.deviation,
                   .split = parts::Split::outputs,
                   .padded = true}) {}

void LmHead::declare(Index& index, int unit, const Layout& layout) {
  norm_.declare(index, unit, name(), layout);
  if (config_.tied_to.empty()) return projection_.declare(index, unit, config_.projection, layout);
  const std::optional<TensorId> tensor = index.find(config_.tied_to);
  if (!tensor)
    internal::reject(name() + ": there is no tensor " + config_.tied_to +
                     " before it to share weights with");
  projection_.tie(index, unit, *tensor, layout);
}

void LmHead::initialize(const Run& run, const Tensors& w) const {
  norm_.initialize(run, w);
  projection_.initialize(run, w);
}

Need LmHead::need(const Spec& in, const Layout& layout) const {
  internal::require_stream(*this, in, layout, config_.channels);
  Carve saved, carry, forward, backward;
  [[maybe_unused]] const Saved kept(saved, *this, in, layout);
  [[maybe_unused]] const Stats stats(forward, in, layout);
  carry.take(in);
  if (in.parts > 1) backward.take(in.type, in.shape);
  return {.out = {gradient_type(in.type), {in.shape[0], in.shape[1]}},
          .saved = saved.bytes(),
          .carry = carry.bytes(),
          .temporary = std::max(forward.bytes(), backward.bytes())};
}

void LmHead::norm_rows(const Run& run, const Tensors& w, const TensorView& x,
                       const TensorView& normed, const TensorView& statistics) const {
  const TensorView own = parts::own_rows(run, normed);
  norm_.forward(run, w, x, own, statistics);
  parts::gather(run, own, normed);
}

void LmHead::divided_losses(const Run& run, const TensorPlace& projection, const TensorView& logits,
                            const TensorView& losses, const TensorView& temporary) const {
  Carve carve(temporary);
  const Stats stats(carve, {logits.type, logits.shape}, run.layout);
  TensorView own = stats.all;  // this rank's statistics, at its place in stats.each
  own.data = stats.each.as<std::byte>() + projection.shard.index * own.bytes();
  kernels::CrossEntropy o = describe(run, logits, losses);
  o.first = projection.shard.index * projection.local[0];
  point_to(o, own);
  run.k().cross_entropy_stats(run.queue(), o);
  parts::all_gather(run, own, stats.each);
  run.k().combine_stats(run.queue(), {.type = own.type,
                                      .rows = o.rows,
                                      .parts = run.layout.tp,
                                      .in = stats.each.data,
                                      .out = stats.all.data});
  point_to(o, stats.all);
  run.k().cross_entropy_finish(run.queue(), o);
}

void LmHead::check_targets(const Spec&, const TensorView& targets) const {
  internal::check_ids(*this, targets, kernels::kIgnore, config_.vocabulary);
}

void LmHead::forward(const Run& run, const Tensors& w, TensorView x, TensorView y, TensorView saved,
                     TensorView temporary) const {
  Carve carve(saved);
  const Saved s(carve, *this, x.spec(), run.layout);
  const TensorPlace& projection = w.place(projection_.weight());
  const TensorView logits = s.logits_of(projection);
  require_targets(*this, run, y.count(), config_.vocabulary);
  norm_rows(run, w, x, s.normed, s.statistics);
  projection_.forward(run, w, s.normed, rows_of(logits));
  if (run.layout.tp == 1)
    run.k().cross_entropy(run.queue(), describe(run, logits, y));
  else
    divided_losses(run, projection, logits, y, temporary);
}

void LmHead::backward_input(const Run& run, const Tensors& w, TensorView, TensorView x,
                            TensorView saved, TensorView carry, TensorView temporary,
                            TensorView dx) const {
  Carve carve(saved);
  const Saved s(carve, *this, x.spec(), run.layout);
  const TensorView dnormed = Carve(carry).take(x.spec());
  const TensorView whole = x.parts == 1 ? dnormed : Carve(temporary).take(x.type, x.shape);
  projection_.backward_input(run, w, rows_of(s.logits_of(w.place(projection_.weight()))), whole);
  parts::sum(run, whole, dnormed);
  if (dx.data != nullptr) norm_.backward_input(run, w, dnormed, x, s.statistics, dx, false);
}

void LmHead::backward_weight(const Run& run, const Tensors& g, TensorView, TensorView x,
                             TensorView saved, TensorView carry, TensorView) const {
  Carve carve(saved);
  const Saved s(carve, *this, x.spec(), run.layout);
  const TensorView logits = s.logits_of(g.place(projection_.weight()));
  projection_.backward_weight(run, g, rows_of(logits), s.normed);
  norm_.backward_weight(run, g, Carve(carry).take(x.spec()), x, s.statistics);
}

double LmHead::flops(const Spec& in) const {
  return projection_.flops(in.shape[0] * in.shape[1]);
}

PassExchanges LmHead::exchanges(const Spec& in, const Layout& layout) const {
  const std::int64_t whole = Spec{in.type, in.shape}.bytes();
  Carve carve;
  const Stats stats(carve, in, layout);
  Exchanged forward = parts::gather_exchange(layout, whole);
  if (layout.tp > 1) forward.all_gather += stats.each.bytes();
  return {forward, parts::sum_exchange(layout, whole)};
}

Need LmHead::prediction_need(const Spec& in, const Layout& layout) const {
  internal::require_stream(*this, in, layout, config_.channels);
  Carve temporary;
  norm_.take_statistics(temporary, in.type, in.count() / in.shape[2]);
  temporary.take(in.type, in.shape);
  return {.out = {in.type, {in.shape[0], in.shape[1], config_.vocabulary}},
          .temporary = temporary.bytes()};
}

/// Sums over ranks: each rank writes its columns into zeros.
void LmHead::predict(const Run& run, const Tensors& w, TensorView x, TensorView y,
                     TensorView temporary) const {
  Carve carve(temporary);
  const TensorView statistics = norm_.take_statistics(carve, x.type, x.rows());
  const TensorView normed = carve.take(x.type, x.shape);
  const TensorPlace& projection = w.place(projection_.weight());
  const std::int64_t first = projection.shard.index * projection.local[0];
  norm_rows(run, w, x, normed, statistics);
  if (run.layout.tp > 1)
    run.k().fill(run.queue(), {.type = y.type, .n = y.count(), .out = y.data, .factor = 0});
  projection_.forward(run, w, normed, Rows(y).from(first, y.type));
  if (run.layout.tp > 1) parts::all_reduce(run, y);
}

void SoftmaxLoss::declare(Index&, int, const Layout&) {}

void SoftmaxLoss::initialize(const Run&, const Tensors&) const {}

Need SoftmaxLoss::need(const Spec& in, const Layout& layout) const {
  if (!internal::fits(in, layout, 2, -1))
    internal::reject_input(*this, in, internal::type_text(layout) + " [rows, classes]");
  Carve saved;
  saved.take(in.type, in.shape);
  return {.out = {gradient_type(in.type), {in.shape[0]}}, .saved = saved.bytes()};
}

void SoftmaxLoss::check_targets(const Spec& in, const TensorView& targets) const {
  internal::check_ids(*this, targets, kernels::kIgnore, in.shape[in.shape.rank() - 1]);
}

void SoftmaxLoss::forward(const Run& run, const Tensors&, TensorView x, TensorView y,
                          TensorView saved, TensorView) const {
  const TensorView logits = Carve(saved).take(x.type, x.shape);
  require_targets(*this, run, logits.rows(), logits.columns());
  internal::copy(run, x, logits);
  run.k().cross_entropy(run.queue(), describe(run, logits, y));
}

void SoftmaxLoss::backward_input(const Run& run, const Tensors&, TensorView, TensorView x,
                                 TensorView saved, TensorView, TensorView, TensorView dx) const {
  if (dx.data != nullptr) internal::copy(run, Carve(saved).take(x.type, x.shape), dx);
}

void SoftmaxLoss::backward_weight(const Run&, const Tensors&, TensorView, TensorView, TensorView,
                                  TensorView, TensorView) const {}

double SoftmaxLoss::flops(const Spec&) const {
  return 0;
}

}  // namespace troupe::train::layers
