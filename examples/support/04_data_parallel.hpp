/// The names that program 04 uses without defining them: a dataset, a batch, and a small network
/// that fits a straight line.
#pragma once

#include "troupe/train/train.hpp"
#include "troupe/troupe.hpp"

#include <span>
#include <tuple>
#include <vector>

struct Batch {
  std::vector<float> x, y;
};
struct Dataset {
  std::vector<float> x, y;
  std::uint64_t size() const { return x.size(); }
  Batch batch(std::span<const std::uint64_t> indices) const {
    Batch chosen;
    for (const std::uint64_t i : indices) {
      chosen.x.push_back(x[i]);
      chosen.y.push_back(y[i]);
    }
    return chosen;
  }
};
inline Dataset load_dataset() {
  Dataset data;
  for (int i = 0; i < 8192; ++i) {
    data.x.push_back(static_cast<float>(i % 101) / 50 - 1);
    data.y.push_back(3 * data.x.back() - 1);
  }
  return data;
}

/// The model y = a * x + b.
class Mlp {
 public:
  explicit Mlp(int seed) : weights_{0.1f * static_cast<float>(seed), 0}, gradients_(2) {}
  /// Returns the mean squared error and replaces the gradients.
  double forward_backward(const Batch& batch) {
    double loss = 0;
    gradients_ = {0, 0};
    const auto n = static_cast<float>(batch.x.size());
    for (std::size_t i = 0; i < batch.x.size(); ++i) {
      const float error = weights_[0] * batch.x[i] + weights_[1] - batch.y[i];
      loss += static_cast<double>(error * error / n);
      gradients_[0] += 2 * error * batch.x[i] / n;
      gradients_[1] += 2 * error / n;
    }
    return loss;
  }
  std::span<float> gradients() { return gradients_; }
  void sgd(float rate) {
    for (std::size_t i = 0; i < 2; ++i) weights_[i] -= rate * gradients_[i];
  }
  friend auto fields(Mlp& m) { return std::tie(m.weights_); }
  friend auto fields(const Mlp& m) { return std::tie(m.weights_); }

 private:
  std::vector<float> weights_, gradients_;
};
