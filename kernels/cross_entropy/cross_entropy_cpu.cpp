#include "troupe/kernels/cross_entropy/cross_entropy.hpp"

#include "troupe/kernels/internal/simd.hpp"

#include <cmath>

namespace troupe::kernels {
TROUPE_KERNEL void cross_entropy_forward(float* losses, const float* logits,
                                         const std::int32_t* targets, std::int64_t rows,
                                         std::int64_t classes) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* row = logits + r * classes;
    if (targets[r] == kIgnore) {
      losses[r] = 0.0f;
      continue;
    }
    const float top = internal::maximum(row, classes);
    const float total =
        internal::sum<float>(classes, [=](std::int64_t c) { return internal::exp(row[c] - top); });
    losses[r] = std::log(total) + top - row[targets[r]];
  }
}

TROUPE_KERNEL void cross_entropy_fused(float* losses, float* logits, const std::int32_t* targets,
                                       std::int64_t rows, std::int64_t classes, float scale) {
  for (std::int64_t r = 0; r < rows; ++r) {
    float* row = logits + r * classes;
    if (targets[r] == kIgnore) {
      losses[r] = 0.0f;
      for (std::int64_t c = 0; c < classes; ++c) row[c] = 0.0f;
      continue;
    }
    const float top = internal::maximum(row, classes), at_target = row[targets[r]];
    for (std::int64_t c = 0; c < classes; ++c) row[c] = internal::exp(row[c] - top);
    const float total = internal::sum<float>(classes, [=](std::int64_t c) { return row[c]; });
    const float factor = scale / total;
    for (std::int64_t c = 0; c < classes; ++c) row[c] *= factor;
    row[targets[r]] -= scale;
    losses[r] = std::log(total) + top - at_target;
  }
}

}  // namespace troupe::kernels
