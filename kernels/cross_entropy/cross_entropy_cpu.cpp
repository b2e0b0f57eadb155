#include "troupe/kernels/cross_entropy/cross_entropy.hpp"

#include "troupe/kernels/internal/simd.hpp"

#include <cmath>

namespace troupe::kernels {
namespace {

TROUPE_INLINE float maximum(const float* row, std::int64_t n) {
  float lane[internal::kLanes];
  for (std::int64_t j = 0; j < internal::kLanes; ++j) lane[j] = row[0];
  std::int64_t i = 0;
  for (; i + internal::kLanes <= n; i += internal::kLanes)
    for (std::int64_t j = 0; j < internal::kLanes; ++j)
      lane[j] = row[i + j] > lane[j] ? row[i + j] : lane[j];
  for (std::int64_t j = 0; i + j < n; ++j) lane[j] = row[i + j] > lane[j] ? row[i + j] : lane[j];
  float top = lane[0];
  for (std::int64_t j = 1; j < internal::kLanes; ++j) top = lane[j] > top ? lane[j] : top;
  return top;
}

}  // namespace

TROUPE_KERNEL void cross_entropy_forward(float* losses, const float* logits,
                                         const std::int32_t* targets, std::int64_t rows,
                                         std::int64_t classes) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* row = logits + r * classes;
    if (targets[r] == kIgnore) {
      losses[r] = 0.0f;
      continue;
    }
    const float top = maximum(row, classes);
    const float total =
        internal::sum<float>(classes, [&](std::int64_t c) { return internal::exp(row[c] - top); });
    losses[r] = std::log(total) + top - row[targets[r]];
  }
}

TROUPE_KERNEL void cross_entropy_fused(float* losses, float* logits, const std::int32_t* targets,
                                       std::int64_t rows, std::int64_t classes, float scale) {
  for (std::int64_t r = 0; r < rows; ++r) {
    float* __restrict row = logits + r * classes;
    if (targets[r] == kIgnore) {
      losses[r] = 0.0f;
      for (std::int64_t c = 0; c < classes; ++c) row[c] = 0.0f;
      continue;
    }
    const float top = maximum(row, classes), at_target = row[targets[r]];
    for (std::int64_t c = 0; c < classes; ++c) row[c] = internal::exp(row[c] - top);
    const float total = internal::sum<float>(classes, [&](std::int64_t c) { return row[c]; });
    const float factor = scale / total;
    for (std::int64_t c = 0; c < classes; ++c) row[c] *= factor;
    row[targets[r]] -= scale;
    losses[r] = std::log(total) + top - at_target;
  }
}

}  // namespace troupe::kernels
