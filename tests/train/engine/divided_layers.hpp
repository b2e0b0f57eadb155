// A layer that tensor-parallel ranks divide, in plain loops, with faults that a test plants; and
// a loss.
#pragma once

#include "troupe/train/layers/layer.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe::train::testing {

enum class Fault : std::uint8_t {
  none,
  no_sum_forward,   ///< y is this rank's part only
  no_sum_backward,  ///< dx is this rank's part only
  sums_bias_twice,  ///< the bias is added before the sum
  not_partial,      ///< the bias' gradient covers own rows only, and its shard does not say so
  wrongly_partial,  ///< the gradient is whole, and its shard says that it is partial
  local_start,      ///< initial weights depend on the local index of an element
  one_rank_sums,    ///< the ranks call a communicator differently
};

/// Computes y = x + W2 relu(W1 x) + b, with W1 divided by rows and W2 by columns. With
/// Layout::sequence the gradient of b is that of every tp-th row, as it is where activations are
/// divided.
class DividedMlp final : public Layer {
 public:
  DividedMlp(std::string name, std::int64_t channels, std::int64_t inner, Fault fault = Fault::none)
      : Layer(std::move(name)), channels_(channels), inner_(inner), fault_(fault) {}

  void declare(Index& index, int unit, const Layout& layout) override {
    const auto shard = [&](int axis) {
      return TensorShard{.axis = axis, .parts = layout.tp, .index = index.tp_rank()};
    };
    up_ = index.add(unit, name() + ".up", {inner_, channels_}, Group::decay, shard(0));
    down_ = index.add(unit, name() + ".down", {channels_, inner_}, Group::decay, shard(1));
    const bool partial =
        fault_ == Fault::wrongly_partial || (layout.sequence && fault_ != Fault::not_partial);
    bias_ = index.add(unit, name() + ".bias", {channels_}, Group::no_decay, {.partial = partial});
  }

  void initialize(const Run& run, const Tensors& w) const override {
    fill_normal(run, w, up_, 0.3f);
    fill_normal(run, w, down_, 0.3f);
    fill_value(run, w, bias_, 0.1f);
    if (fault_ != Fault::local_start) return;
    const TensorView up = w[up_];
    for (std::int64_t i = 0; i < up.count(); ++i)
      up.as<float>()[i] = static_cast<float>(i % 7) * 0.1f;
  }

  Need need(const Spec& in, const Layout& layout) const override {
    const std::int64_t bytes = in.shape[0] * (inner_ / layout.tp) * std::int64_t{sizeof(float)};
    return {.out = in, .saved = bytes, .carry = bytes, .temporary = 0};
  }

  void forward(const Run& run, const Tensors& w, TensorView x, TensorView y, TensorView saved,
               TensorView) const override {
    const auto *up = w[up_].as<float>(), *down = w[down_].as<float>(), *b = w[bias_].as<float>();
    const std::int64_t inner = inner_ / run.layout.tp, c = channels_;
    for (std::int64_t r = 0; r < x.rows(); ++r) {
      const float* in = x.as<float>() + r * c;
      float *hidden = saved.as<float>() + r * inner, *out = y.as<float>() + r * c;
      for (std::int64_t i = 0; i < inner; ++i)
        hidden[i] = std::max(0.0f, dot(up + i * c, in, c, 1));
      for (std::int64_t i = 0; i < c; ++i) out[i] = dot(down + i * inner, hidden, inner, 1);
      if (fault_ == Fault::sums_bias_twice)
        for (std::int64_t i = 0; i < c; ++i) out[i] += b[i];
    }
    if (fault_ != Fault::no_sum_forward) sum(run, y);
    for (std::int64_t i = 0; i < y.count(); ++i)
      y.as<float>()[i] += x.as<float>()[i] + (fault_ == Fault::sums_bias_twice ? 0 : b[i % c]);
  }

  void backward_input(const Run& run, const Tensors& w, TensorView dy, TensorView x,
                      TensorView saved, TensorView carry, TensorView,
                      TensorView dx) const override {
    const auto *up = w[up_].as<float>(), *down = w[down_].as<float>();
    const std::int64_t inner = inner_ / run.layout.tp, c = channels_;
    for (std::int64_t r = 0; r < x.rows(); ++r) {
      const float *hidden = saved.as<float>() + r * inner, *dout = dy.as<float>() + r * c;
      float* dhidden = carry.as<float>() + r * inner;
      for (std::int64_t i = 0; i < inner; ++i)
        dhidden[i] = hidden[i] > 0 ? dot(down + i, dout, c, inner) : 0.0f;
      if (dx.data == nullptr) continue;
      for (std::int64_t i = 0; i < c; ++i)
        dx.as<float>()[r * c + i] = dot(up + i, dhidden, inner, c);
    }
    if (dx.data == nullptr) return;
    if (fault_ != Fault::no_sum_backward) sum(run, dx);
    for (std::int64_t i = 0; i < dx.count(); ++i) dx.as<float>()[i] += dy.as<float>()[i];
  }

  void backward_weight(const Run& run, const Tensors& g, TensorView dy, TensorView x,
                       TensorView saved, TensorView carry, TensorView) const override {
    auto *up = g[up_].as<float>(), *down = g[down_].as<float>(), *b = g[bias_].as<float>();
    const std::int64_t inner = inner_ / run.layout.tp, c = channels_;
    for (std::int64_t r = 0; r < x.rows(); ++r) {
      const float *in = x.as<float>() + r * c, *dout = dy.as<float>() + r * c;
      const float *hidden = saved.as<float>() + r * inner, *dhidden = carry.as<float>() + r * inner;
      for (std::int64_t i = 0; i < inner * c; ++i) up[i] += dhidden[i / c] * in[i % c];
      for (std::int64_t i = 0; i < inner * c; ++i) down[i] += dout[i / inner] * hidden[i % inner];
      const bool own = !run.layout.sequence || r % run.layout.tp == run.tp->rank();
      for (std::int64_t i = 0; own && i < c; ++i) b[i] += dout[i];
    }
  }

  double flops(const Spec& in) const override {
    return 4.0 * static_cast<double>(in.shape[0] * channels_ * inner_);
  }

 private:
  /// Returns the dot product; the elements of `a` are `stride` apart.
  static float dot(const float* a, const float* b, std::int64_t n, std::int64_t stride) {
    float sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += a[i * stride] * b[i];
    return sum;
  }
  void sum(const Run& run, const TensorView& view) const {
    if (run.tp == nullptr) return;
    if (fault_ == Fault::one_rank_sums && run.tp->rank() == 0) return;
    run.tp->all_reduce({view.data, view.type, view.count()}).wait();
  }

  std::int64_t channels_, inner_;
  Fault fault_;
  TensorId up_ = -1, down_ = -1, bias_ = -1;
};

/// Half the squared distance of x * w to f32 targets, with one loss per row. w is replicated.
class SquaresLoss final : public Layer {
 public:
  SquaresLoss(std::string name, std::int64_t channels)
      : Layer(std::move(name)), channels_(channels) {}

  void declare(Index& index, int unit, const Layout&) override {
    scale_ = index.add(unit, name() + ".scale", {channels_}, Group::no_decay);
  }
  void initialize(const Run& run, const Tensors& w) const override {
    fill_value(run, w, scale_, 1);
  }
  Need need(const Spec& in, const Layout&) const override {
    return {.out = {in.type, {in.shape[0]}}, .saved = in.bytes(), .carry = 0, .temporary = 0};
  }
  void forward(const Run& run, const Tensors& w, TensorView x, TensorView y, TensorView saved,
               TensorView) const override {
    const auto *scale = w[scale_].as<float>(), *targets = run.targets->values.as<float>();
    std::fill_n(y.as<float>(), y.count(), 0.0f);
    for (std::int64_t i = 0; i < x.count(); ++i) {
      const float error = x.as<float>()[i] * scale[i % channels_] - targets[i];
      saved.as<float>()[i] = error / static_cast<float>(run.targets->total);
      y.as<float>()[i / channels_] += error * error / 2;
    }
  }
  void backward_input(const Run&, const Tensors& w, TensorView, TensorView, TensorView saved,
                      TensorView, TensorView, TensorView dx) const override {
    for (std::int64_t i = 0; dx.data != nullptr && i < dx.count(); ++i)
      dx.as<float>()[i] = saved.as<float>()[i] * w[scale_].as<float>()[i % channels_];
  }
  void backward_weight(const Run&, const Tensors& g, TensorView, TensorView x, TensorView saved,
                       TensorView, TensorView) const override {
    auto* scale = g[scale_].as<float>();
    for (std::int64_t i = 0; i < x.count(); ++i)
      scale[i % channels_] += saved.as<float>()[i] * x.as<float>()[i];
  }
  double flops(const Spec& in) const override { return 4.0 * static_cast<double>(in.count()); }
  bool is_loss() const noexcept override { return true; }
  DType target_type() const noexcept override { return DType::f32; }

 private:
  std::int64_t channels_;
  TensorId scale_ = -1;
};

inline constexpr std::int64_t kDividedChannels = 6, kDividedInner = 24;

/// Returns a model of three layers and a loss; the second layer has the fault.
inline Model divided_model(Fault fault = Fault::none) {
  Model model;
  for (const Fault each : {Fault::none, fault, Fault::none})
    model.push_back(std::make_unique<DividedMlp>("mlp." + std::to_string(model.size()),
                                                 kDividedChannels, kDividedInner, each));
  model.push_back(std::make_unique<SquaresLoss>("loss", kDividedChannels));
  return model;
}

}  // namespace troupe::train::testing
