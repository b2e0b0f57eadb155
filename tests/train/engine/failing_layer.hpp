// A layer of a model that throws when a test says so.
#pragma once

#include "tests/train/engine/ranks.hpp"

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace troupe::train::testing {

/// Returns its input until `fails` is set, and then throws in the middle of a pass.
class Failing final : public Layer {
 public:
  Failing(std::string name, const bool& fails) : Layer(std::move(name)), fails_(&fails) {}
  void declare(Index&, int, const Layout&) override {}
  void initialize(const Run&, const Tensors&) const override {}
  Need need(const Spec& in, const Layout&) const override { return {.out = in}; }
  void forward(const Run&, const Tensors&, TensorView x, TensorView y, TensorView,
               TensorView) const override {
    if (*fails_) throw std::runtime_error("the layer failed");
    std::memcpy(y.data, x.data, static_cast<std::size_t>(x.bytes()));
  }
  void backward_input(const Run&, const Tensors&, TensorView dy, TensorView, TensorView, TensorView,
                      TensorView, TensorView dx) const override {
    std::memcpy(dx.data, dy.data, static_cast<std::size_t>(dy.bytes()));
  }
  void backward_weight(const Run&, const Tensors&, TensorView, TensorView, TensorView, TensorView,
                       TensorView) const override {}
  double flops(const Spec&) const override { return 0; }

 private:
  const bool* fails_;
};

/// Returns gpt(shape) with a failing layer behind each of its layers but the loss.
inline Model failing_gpt(const GptShape& shape, const bool& fails) {
  Model model;
  for (std::unique_ptr<Layer>& layer : gpt(shape)) {
    const bool ends = layer->is_loss();
    model.push_back(std::move(layer));
    if (ends) return model;
    model.push_back(std::make_unique<Failing>("failing." + std::to_string(model.size()), fails));
  }
  return model;
}

}  // namespace troupe::train::testing
