#include "troupe/train/layers/dense.hpp"
#include "troupe/train/layers/head.hpp"
#include "troupe/train/layers/image.hpp"
#include "troupe/train/models/models.hpp"

#include <cmath>

namespace troupe::train::models {
namespace {

using kernels::Activation;

/// Returns a deviation for small logits, so that the first loss is about log(classes).
float last_deviation(std::int64_t in) {
  return 0.1f / std::sqrt(static_cast<float>(in < 1 ? 1 : in));
}

void add_dense(Model& model, std::string name, const layers::DenseConfig& config) {
  model.push_back(std::make_unique<layers::Dense>(std::move(name), config));
}

/// Adds a convolution with ReLU, and a pool that halves height and width.
void add_convolution(Model& model, const std::string& number, std::int64_t in, std::int64_t out,
                     const CnnConfig& c) {
  model.push_back(std::make_unique<layers::Conv2d>(
      "conv" + number, layers::Conv2dConfig{.in = in,
                                            .out = out,
                                            .kernel = c.kernel,
                                            .padding = c.padding,
                                            .activation = Activation::relu}));
  model.push_back(std::make_unique<layers::MaxPool>("pool" + number, 2));
}

/// Returns an edge's size after a convolution and a pool.
std::int64_t halved(std::int64_t size, const CnnConfig& c) {
  return (size + 2 * c.padding - c.kernel + 1) / 2;
}

}  // namespace

Model mlp(const MlpConfig& c) {
  Model model;
  std::int64_t in = c.in;
  for (const std::int64_t out : c.hidden) {
    add_dense(model, "layers." + std::to_string(model.size()),
              {.in = in, .out = out, .activation = Activation::relu});
    in = out;
  }
  add_dense(model, "layers." + std::to_string(model.size()),
            {.in = in, .out = c.classes, .deviation = last_deviation(in)});
  model.push_back(std::make_unique<layers::SoftmaxLoss>("loss"));
  return model;
}

Model cnn(const CnnConfig& c) {
  Model model;
  add_convolution(model, "1", c.channels, c.first, c);
  add_convolution(model, "2", c.first, c.second, c);
  model.push_back(std::make_unique<layers::Flatten>("flatten"));
  const std::int64_t features =
      c.second * halved(halved(c.height, c), c) * halved(halved(c.width, c), c);
  add_dense(model, "fc1", {.in = features, .out = c.hidden, .activation = Activation::relu});
  add_dense(model, "fc2",
            {.in = c.hidden, .out = c.classes, .deviation = last_deviation(c.hidden)});
  model.push_back(std::make_unique<layers::SoftmaxLoss>("loss"));
  return model;
}

}  // namespace troupe::train::models
