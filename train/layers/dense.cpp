#include "troupe/train/layers/dense.hpp"

#include "troupe/train/layers/internal/common.hpp"

#include <cmath>

namespace troupe::train::layers {
namespace {

float deviation_of(const DenseConfig& c) {
  if (c.deviation != 0) return c.deviation;
  return std::sqrt(2.0f / static_cast<float>(c.in));
}

}  // namespace

Dense::Dense(std::string name, const DenseConfig& config)
    : Layer(std::move(name)),
      config_(config),
      linear_({.in = config.in,
               .out = config.out,
               .bias = config.bias,
               .deviation = deviation_of(config)}) {
  if (config.in < 1 || config.out < 1)
    internal::reject(this->name() + ": the sizes of a dense layer must be positive");
}

void Dense::declare(Index& index, int unit, const Layout&) {
  linear_.declare(index, unit, name());
}

void Dense::initialize(const Run& run, const Tensors& w) const {
  linear_.initialize(run, w);
}

Need Dense::need(const Spec& in, const Layout& layout) const {
  if (in.shape.rank() < 1 || !internal::fits(in, layout, in.shape.rank(), config_.in))
    internal::reject_input(
        *this, in, internal::type_text(layout) + " [..., " + std::to_string(config_.in) + "]");
  Spec out = in;
  out.shape.set(in.shape.rank() - 1, config_.out);
  Carve sum;
  if (activates()) sum.take(out.type, out.shape);
  return {.out = out, .saved = sum.bytes(), .carry = sum.bytes()};
}

void Dense::forward(const Run& run, const Tensors& w, TensorView x, TensorView y, TensorView saved,
                    TensorView) const {
  linear_.forward(run, w, x, y,
                  {.activation = config_.activation,
                   .aux = activates() ? Carve(saved).take(y.type, y.shape).data : nullptr});
}

void Dense::backward_input(const Run& run, const Tensors& w, TensorView dy, TensorView,
                           TensorView saved, TensorView carry, TensorView, TensorView dx) const {
  TensorView dsum = dy;
  if (activates()) {
    dsum = Carve(carry).take(dy.type, dy.shape);
    run.k().activate_backward(run.queue(), {.type = run.type,
                                            .activation = config_.activation,
                                            .n = dy.count(),
                                            .in = Carve(saved).take(dy.type, dy.shape).data,
                                            .dout = dy.data,
                                            .din = dsum.data});
  }
  if (dx.data != nullptr) linear_.backward_input(run, w, dsum, dx);
}

void Dense::backward_weight(const Run& run, const Tensors& g, TensorView dy, TensorView x,
                            TensorView, TensorView carry, TensorView) const {
  linear_.backward_weight(run, g, activates() ? Carve(carry).take(dy.type, dy.shape) : dy, x);
}

double Dense::flops(const Spec& in) const {
  return linear_.flops(in.count() / config_.in);
}

void Flatten::declare(Index&, int, const Layout&) {}

void Flatten::initialize(const Run&, const Tensors&) const {}

Need Flatten::need(const Spec& in, const Layout&) const {
  if (in.shape.rank() < 1) internal::reject_input(*this, in, "[batch, ...]");
  Shape out{in.shape[0], 1};
  for (int axis = 1; axis < in.shape.rank(); ++axis) out.set(1, out[1] * in.shape[axis]);
  return {.out = {in.type, out}};
}

void Flatten::forward(const Run& run, const Tensors&, TensorView x, TensorView y, TensorView,
                      TensorView) const {
  internal::copy(run, x, y);
}

void Flatten::backward_input(const Run& run, const Tensors&, TensorView dy, TensorView, TensorView,
                             TensorView, TensorView, TensorView dx) const {
  if (dx.data != nullptr) internal::copy(run, dy, dx);
}

void Flatten::backward_weight(const Run&, const Tensors&, TensorView, TensorView, TensorView,
                              TensorView, TensorView) const {}

double Flatten::flops(const Spec&) const {
  return 0;
}

}  // namespace troupe::train::layers
