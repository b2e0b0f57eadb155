#include "troupe/train/layers/image.hpp"

#include "troupe/train/layers/internal/common.hpp"

#include <cmath>

namespace troupe::train::layers {
namespace {

std::int64_t patch_of(const Conv2dConfig& c) {
  return c.in * c.kernel * c.kernel;
}

float deviation_of(const Conv2dConfig& c) {
  if (c.deviation != 0) return c.deviation;
  return std::sqrt(2.0f / static_cast<float>(patch_of(c)));
}

std::int64_t places(const Conv2dConfig& c, std::int64_t size) {
  const std::int64_t room = size + 2 * c.padding - c.kernel;
  return room < 0 ? 0 : room / c.stride + 1;
}

void transpose(const Run& run, std::int64_t outer, std::int64_t a, std::int64_t b, const void* in,
               void* out) {
  run.k().transpose(run.queue(),
                    {.type = run.type, .outer = outer, .a = a, .b = b, .in = in, .out = out});
}

}  // namespace

/// The layer as matrix products: one row for each pixel of the output.
struct Conv2d::Pixels {
  std::int64_t batch, height, width, out, patch;
  DType type;

  Pixels(const Conv2dConfig& c, const Spec& in)
      : batch(in.shape[0]),
        height(places(c, in.shape[2])),
        width(places(c, in.shape[3])),
        out(c.out),
        patch(patch_of(c)),
        type(in.type) {}
  std::int64_t area() const { return height * width; }
  TensorView take_patches(Carve& carve) const { return carve.take(type, {batch * area(), patch}); }
  TensorView take_values(Carve& carve) const { return carve.take(type, {batch * area(), out}); }
  TensorView values(const TensorView& memory) const {
    Carve carve(memory);
    return take_values(carve);
  }
};

Conv2d::Conv2d(std::string name, const Conv2dConfig& c)
    : Layer(std::move(name)),
      config_(c),
      linear_({.in = patch_of(c), .out = c.out, .bias = c.bias, .deviation = deviation_of(c)}) {
  if (c.in < 1 || c.out < 1 || c.kernel < 1 || c.stride < 1 || c.padding < 0)
    internal::reject(this->name() + ": the sizes of a convolution must be positive");
}

void Conv2d::declare(Index& index, int unit, const Layout& layout) {
  internal::refuse_tensor_parallel(*this, layout);
  linear_.declare(index, unit, name(),
                  Shape{config_.out, config_.in, config_.kernel, config_.kernel});
}

void Conv2d::initialize(const Run& run, const Tensors& w) const {
  linear_.initialize(run, w);
}

Need Conv2d::need(const Spec& in, const Layout& layout) const {
  const bool fits = internal::fits(in, layout, 4, -1) && in.shape[1] == config_.in &&
                    places(config_, in.shape[2]) > 0 && places(config_, in.shape[3]) > 0;
  if (!fits)
    internal::reject_input(*this, in,
                           internal::type_text(layout) + " [batch, " + std::to_string(config_.in) +
                               ", height, width] of at least the kernel's size");
  const Pixels pixels(config_, in);
  Carve values, temporary;
  pixels.take_values(values);
  pixels.take_patches(temporary);
  pixels.take_values(temporary);
  return {.out = {in.type, {pixels.batch, pixels.out, pixels.height, pixels.width}},
          .saved = activates() ? values.bytes() : 0,
          .carry = values.bytes(),
          .temporary = temporary.bytes()};
}

void Conv2d::unfold(const Run& run, const TensorView& x, const TensorView& patches) const {
  run.k().im2col(run.queue(), describe(run, x, x.data, patches.data));
}

kernels::Im2col Conv2d::describe(const Run& run, const TensorView& x, const void* in,
                                 void* out) const {
  return {.type = run.type,
          .batch = x.shape[0],
          .channels = x.shape[1],
          .height = x.shape[2],
          .width = x.shape[3],
          .kernel = config_.kernel,
          .stride = config_.stride,
          .padding = config_.padding,
          .in = in,
          .out = out};
}

void Conv2d::forward(const Run& run, const Tensors& w, TensorView x, TensorView y, TensorView saved,
                     TensorView temporary) const {
  const Pixels pixels(config_, x.spec());
  Carve carve(temporary);
  const TensorView patches = pixels.take_patches(carve), values = pixels.take_values(carve);
  unfold(run, x, patches);
  linear_.forward(
      run, w, patches, values,
      {.activation = config_.activation, .aux = activates() ? pixels.values(saved).data : nullptr});
  transpose(run, pixels.batch, pixels.area(), pixels.out, values.data, y.data);
}

void Conv2d::backward_input(const Run& run, const Tensors& w, TensorView dy, TensorView x,
                            TensorView saved, TensorView carry, TensorView temporary,
                            TensorView dx) const {
  const Pixels pixels(config_, x.spec());
  const TensorView dvalues = pixels.values(carry);
  transpose(run, pixels.batch, pixels.out, pixels.area(), dy.data, dvalues.data);
  if (activates())
    run.k().activate_backward(run.queue(), {.type = run.type,
                                            .activation = config_.activation,
                                            .n = dvalues.count(),
                                            .in = pixels.values(saved).data,
                                            .dout = dvalues.data,
                                            .din = dvalues.data});
  if (dx.data == nullptr) return;
  Carve carve(temporary);
  const TensorView dpatches = pixels.take_patches(carve);
  linear_.backward_input(run, w, dvalues, dpatches);
  run.k().col2im(run.queue(), describe(run, x, dpatches.data, dx.data));
}

void Conv2d::backward_weight(const Run& run, const Tensors& g, TensorView, TensorView x, TensorView,
                             TensorView carry, TensorView temporary) const {
  const Pixels pixels(config_, x.spec());
  Carve carve(temporary);
  const TensorView patches = pixels.take_patches(carve);
  unfold(run, x, patches);
  linear_.backward_weight(run, g, pixels.values(carry), patches);
}

double Conv2d::flops(const Spec& in) const {
  return linear_.flops(in.shape[0] * places(config_, in.shape[2]) * places(config_, in.shape[3]));
}

MaxPool::MaxPool(std::string name, std::int64_t window) : Layer(std::move(name)), window_(window) {
  if (window < 1) internal::reject(this->name() + ": the window of a pool must be positive");
}

void MaxPool::declare(Index&, int, const Layout&) {}

void MaxPool::initialize(const Run&, const Tensors&) const {}

Need MaxPool::need(const Spec& in, const Layout& layout) const {
  if (!internal::fits(in, layout, 4, -1) || in.shape[2] < window_ || in.shape[3] < window_)
    internal::reject_input(*this, in,
                           internal::type_text(layout) +
                               " [batch, channels, height, width] of at least " +
                               std::to_string(window_) + " x " + std::to_string(window_));
  const Spec out{in.type, {in.shape[0], in.shape[1], in.shape[2] / window_, in.shape[3] / window_}};
  Carve saved;
  saved.take(DType::i32, out.shape);
  return {.out = out, .saved = saved.bytes()};
}

kernels::MaxPool MaxPool::describe(const Run& run, const TensorView& x) const {
  return {.type = run.type,
          .planes = x.shape[0] * x.shape[1],
          .height = x.shape[2],
          .width = x.shape[3],
          .window = window_};
}

void MaxPool::forward(const Run& run, const Tensors&, TensorView x, TensorView y, TensorView saved,
                      TensorView) const {
  kernels::MaxPool pool = describe(run, x);
  pool.in = x.data;
  pool.out = y.data;
  pool.index = saved.as<std::int32_t>();
  run.k().max_pool(run.queue(), pool);
}

void MaxPool::backward_input(const Run& run, const Tensors&, TensorView dy, TensorView x,
                             TensorView saved, TensorView, TensorView, TensorView dx) const {
  if (dx.data == nullptr) return;
  kernels::MaxPool pool = describe(run, x);
  pool.index = saved.as<std::int32_t>();
  pool.dout = dy.data;
  pool.din = dx.data;
  run.k().max_pool_backward(run.queue(), pool);
}

void MaxPool::backward_weight(const Run&, const Tensors&, TensorView, TensorView, TensorView,
                              TensorView, TensorView) const {}

double MaxPool::flops(const Spec&) const {
  return 0;
}

}  // namespace troupe::train::layers
