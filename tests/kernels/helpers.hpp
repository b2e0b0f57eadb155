/// Helpers of the kernel tests: random vectors, and the distance of two vectors.
#pragma once

#include "troupe/runtime/base/random.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace troupe::kernels {

inline std::vector<float> random_vector(std::size_t n, std::uint64_t seed, double scale = 1.0) {
  Random random(seed);
  std::vector<float> x(n);
  for (float& value : x) value = static_cast<float>((random.uniform() * 2 - 1) * scale);
  return x;
}

/// Returns the largest |a - b| divided by the largest |b|.
inline double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 1e-12;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::abs(static_cast<double>(a[i]) - b[i]));
    size = std::max(size, std::abs(static_cast<double>(b[i])));
  }
  return difference / size;
}

}  // namespace troupe::kernels
