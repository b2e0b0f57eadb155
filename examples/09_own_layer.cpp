// A layer of one's own. It is checked against finite differences, then in a small language model
// against other layouts, and trained.
#include "troupe/train/engine/check_layouts.hpp"
#include "troupe/train/engine/engine.hpp"
#include "troupe/train/layers/check.hpp"
#include "troupe/train/layers/embedding.hpp"
#include "troupe/train/layers/head.hpp"

#include <iostream>

using namespace troupe::train;
using troupe::kernels::Activation;

class Mix final : public Layer {  // y = x + silu(x W^T + b)
 public:
  Mix(std::string name, std::int64_t channels)
      : Layer(std::move(name)), linear_({.in = channels, .out = channels}) {}
  void declare(Index& index, int unit, const Layout& layout) override {
    linear_.declare(index, unit, name(), layout);
  }
  void initialize(const Run& run, const Tensors& w) const override { linear_.initialize(run, w); }
  Need need(const Spec& in, const Layout&) const override {  // silu's argument, and its gradient
    return {.out = in, .saved = in.bytes(), .carry = in.bytes()};
  }
  void forward(const Run& run, const Tensors& w, TensorView x, TensorView y, TensorView saved,
               TensorView) const override {
    linear_.forward(run, w, x, y, {.activation = Activation::silu, .aux = saved.data});
    run.k().add(run.queue(), {run.type, y.count(), x.data, y.data, y.data});
  }
  void backward_input(const Run& run, const Tensors& w, TensorView dy, TensorView x,
                      TensorView saved, TensorView carry, TensorView,
                      TensorView dx) const override {
    run.k().activate_backward(
        run.queue(), {run.type, Activation::silu, dy.count(), saved.data, dy.data, carry.data});
    if (dx.data == nullptr) return;  // the first layer needs no gradient of its input
    run.device.copy(run.queue(), dx.data, dy.data, static_cast<std::size_t>(dy.bytes()));
    linear_.backward_input(run, w, TensorView(carry.data, x.spec()), dx, {.add = true});
  }
  void backward_weight(const Run& run, const Tensors& g, TensorView, TensorView x, TensorView,
                       TensorView carry, TensorView) const override {
    linear_.backward_weight(run, g, TensorView(carry.data, x.spec()), x);
  }
  double flops(const Spec& in) const override { return linear_.flops(in.shape[0] * in.shape[1]); }

 private:
  parts::Linear linear_;
};

Model guesser() {  // predicts a letter from the one before it
  Model model;
  model.push_back(std::make_unique<layers::Embedding>(
      "tokens", layers::EmbeddingConfig{.vocabulary = 128, .channels = 32}));
  for (const char* name : {"mix.0", "mix.1"}) model.push_back(std::make_unique<Mix>(name, 32));
  model.push_back(std::make_unique<layers::LmHead>(
      "norm", layers::LmHeadConfig{.vocabulary = 128, .channels = 32}));
  return model;
}

int main() {
  Mix alone("mix", 6);
  std::cout << check_gradients(alone, {.input = {DType::f64, {3, 5, 6}}}).text();
  std::cout
      << check_layouts(guesser, {.input = {DType::i32, {4, 8}}, .ids = 128, .classes = 128}).text();

  const std::string text = "how much wood would a woodchuck chuck if a woodchuck could chuck wood";
  std::vector<std::int32_t> ids(text.begin(), text.end());
  const Shape shape{1, std::ssize(ids) - 1};
  const MicroBatch batch{{ids.data(), DType::i32, shape}, {ids.data() + 1, DType::i32, shape}};
  troupe::collective::Mesh mesh;  // this process alone
  troupe::kernels::Device device = troupe::kernels::cpu_device();
  Engine engine(guesser(), {}, mesh, device, {.rate = 1e-2f});
  engine.initialize(/*seed=*/1);
  const double first = engine.evaluate({&batch, 1});
  for (int step = 0; step < 100; ++step) engine.step({&batch, 1});
  const double last = engine.evaluate({&batch, 1});
  std::cout << "loss " << first << " -> " << last << '\n';
  return last < 1.2 && first > 4 ? 0 : 1;
}
