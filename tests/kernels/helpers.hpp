/// What the kernel tests share: random vectors, and gradients by central differences in double.
#pragma once

#include "troupe/runtime/base/random.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

namespace troupe::kernels {

inline std::vector<float> random_vector(std::size_t n, std::uint64_t seed, double scale = 1.0) {
  Random random(seed);
  std::vector<float> x(n);
  for (float& value : x) value = static_cast<float>((random.uniform() * 2 - 1) * scale);
  return x;
}

/// Largest |a - b| over the largest |b|.
inline double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 1e-12;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::abs(static_cast<double>(a[i]) - b[i]));
    size = std::max(size, std::abs(static_cast<double>(b[i])));
  }
  return difference / size;
}

inline double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double total = 0;
  for (std::size_t i = 0; i < a.size(); ++i) total += static_cast<double>(a[i]) * b[i];
  return total;
}

/// d f / d x by central differences; x is restored.
inline std::vector<float> numeric_gradient(std::vector<float>& x, const std::function<double()>& f,
                                           float step = 1e-2f) {
  std::vector<float> gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float kept = x[i];
    x[i] = kept + step;
    const double above = f();
    const float high = x[i];
    x[i] = kept - step;
    const double below = f();
    gradient[i] = static_cast<float>((above - below) / (static_cast<double>(high) - x[i]));
    x[i] = kept;
  }
  return gradient;
}

}  // namespace troupe::kernels
