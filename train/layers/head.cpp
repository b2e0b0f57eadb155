#include "troupe/train/layers/head.hpp"

#include "troupe/kernels/cross_entropy/cross_entropy.hpp"
#include "troupe/train/layers/internal/common.hpp"

namespace troupe::train::layers {
namespace {

using parts::gradient_type;

/// Losses of `logits`, which become their gradient when the run trains.
void cross_entropy(const Layer& layer, const Run& run, const TensorView& logits,
                   const TensorView& losses) {
  internal::require(run.targets != nullptr, "a loss needs Run::targets");
  const TensorView& targets = run.targets->values;
  if (targets.type != DType::i32 || targets.count() != logits.rows())
    internal::reject(layer.name() + " needs " + std::to_string(logits.rows()) +
                     " i32 targets, not " + std::string(kernels::name_of(targets.type)) + " " +
                     targets.shape.text());
  internal::check_ids(layer, run, targets, kernels::kIgnore, logits.columns());
  run.k().cross_entropy(run.queue(),
                        {.type = logits.type,
                         .rows = logits.rows(),
                         .classes = logits.columns(),
                         .row = logits.columns(),
                         .logits = logits.data,
                         .targets = targets.as<std::int32_t>(),
                         .losses = losses.data,
                         .gradient = run.training,
                         .scale = run.targets->scale / static_cast<double>(run.targets->total)});
}

}  // namespace

struct LmHead::Saved {
  TensorView statistics, normed, logits;
  Saved(Carve& carve, const LmHead& head, const Spec& in)
      : statistics(head.norm_.take_statistics(carve, in.type, in.shape[0] * in.shape[1])),
        normed(carve.take(in.type, in.shape)),
        logits(carve.take(in.type, {in.shape[0], in.shape[1], head.config_.vocabulary})) {}
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
                   .deviation = config.deviation}) {}

void LmHead::declare(Index& index, int unit, const Layout& layout) {
  internal::refuse_tensor_parallel(*this, layout);
  norm_.declare(index, unit, name());
  if (config_.tied_to.empty()) return projection_.declare(index, unit, config_.projection);
  const std::optional<TensorId> tensor = index.find(config_.tied_to);
  if (!tensor)
    internal::reject(name() + ": there is no tensor " + config_.tied_to +
                     " before it to share weights with");
  projection_.tie(index, unit, *tensor);
}

void LmHead::initialize(const Run& run, const Tensors& w) const {
  norm_.initialize(run, w);
  projection_.initialize(run, w);
}

void LmHead::check_input(const Spec& in, const Layout& layout) const {
  if (!internal::fits(in, layout, 3, config_.channels))
    internal::reject_input(
        *this, in,
        internal::type_text(layout) + " [batch, time, " + std::to_string(config_.channels) + "]");
}

Need LmHead::need(const Spec& in, const Layout& layout) const {
  check_input(in, layout);
  Carve saved, carry;
  [[maybe_unused]] const Saved kept(saved, *this, in);
  carry.take(in.type, in.shape);
  return {.out = {gradient_type(in.type), {in.shape[0], in.shape[1]}},
          .saved = saved.bytes(),
          .carry = carry.bytes()};
}

void LmHead::forward(const Run& run, const Tensors& w, TensorView x, TensorView y, TensorView saved,
                     TensorView) const {
  Carve carve(saved);
  const Saved s(carve, *this, x.spec());
  norm_.forward(run, w, x, s.normed, s.statistics);
  projection_.forward(run, w, s.normed, s.logits);
  cross_entropy(*this, run, s.logits, y);
}

void LmHead::backward_input(const Run& run, const Tensors& w, TensorView, TensorView x,
                            TensorView saved, TensorView carry, TensorView, TensorView dx) const {
  Carve carve(saved);
  const Saved s(carve, *this, x.spec());
  const TensorView dnormed = Carve(carry).take(x.type, x.shape);
  projection_.backward_input(run, w, s.logits, dnormed);
  if (dx.data != nullptr) norm_.backward_input(run, w, dnormed, x, s.statistics, dx, false);
}

void LmHead::backward_weight(const Run& run, const Tensors& g, TensorView, TensorView x,
                             TensorView saved, TensorView carry, TensorView) const {
  Carve carve(saved);
  const Saved s(carve, *this, x.spec());
  projection_.backward_weight(run, g, s.logits, s.normed);
  norm_.backward_weight(run, g, Carve(carry).take(x.type, x.shape), x, s.statistics);
}

double LmHead::flops(const Spec& in) const {
  return projection_.flops(in.shape[0] * in.shape[1]);
}

Need LmHead::prediction_need(const Spec& in, const Layout& layout) const {
  check_input(in, layout);
  Carve temporary;
  norm_.take_statistics(temporary, in.type, in.shape[0] * in.shape[1]);
  temporary.take(in.type, in.shape);
  return {.out = {in.type, {in.shape[0], in.shape[1], config_.vocabulary}},
          .temporary = temporary.bytes()};
}

void LmHead::predict(const Run& run, const Tensors& w, TensorView x, TensorView y,
                     TensorView temporary) const {
  Carve carve(temporary);
  const TensorView statistics = norm_.take_statistics(carve, x.type, x.rows());
  const TensorView normed = carve.take(x.type, x.shape);
  norm_.forward(run, w, x, normed, statistics);
  projection_.forward(run, w, normed, y);
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

void SoftmaxLoss::forward(const Run& run, const Tensors&, TensorView x, TensorView y,
                          TensorView saved, TensorView) const {
  const TensorView logits = Carve(saved).take(x.type, x.shape);
  internal::copy(run, x, logits);
  cross_entropy(*this, run, logits, y);
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
