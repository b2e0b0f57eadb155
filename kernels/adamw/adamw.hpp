/// AdamW (Loshchilov and Hutter 2019, algorithm 2), decay decoupled and applied first, as torch
/// does.
///
///     adamw(parameters, m, v, gradients, n, {.rate = 1e-3f, .decay = 0.1f, .step = 1});
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <cstdint>

namespace troupe::kernels {

struct AdamWStep {
  float rate = 1e-3f;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  float decay = 0.01f;
  float gradient_scale = 1.0f;  ///< multiplies every gradient first: the factor of a norm clip
  std::int64_t step = 1;        ///< counts from 1
};

/// One update of n parameters and their moments m and v (both start at zero). Gradients are read
/// only. Elementwise: any split of the range gives the same bits.
TROUPE_API void adamw(float* parameters, float* m, float* v, const float* gradients, std::int64_t n,
                      const AdamWStep& step);

}  // namespace troupe::kernels
