/// Causal self-attention with several heads (Vaswani et al. 2017, eq. 1, masked).
///
///     // qkv[batch, time, 3 * channels] holds query, key and value side by side, heads within each
///     attention_forward(out, probabilities, qkv, batch, time, channels, heads);
///     attention_backward(dqkv, dout, qkv, probabilities, batch, time, channels, heads);
///
/// heads divides channels. Products run on gemm(), one pair per batch row and head.
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <cstdint>

namespace troupe::kernels {

/// out[batch, time, channels]; probabilities[batch, heads, time, time] is kept for backward, its
/// upper triangle is zero.
TROUPE_API void attention_forward(float* out, float* probabilities, const float* qkv,
                                  std::int64_t batch, std::int64_t time, std::int64_t channels,
                                  std::int64_t heads);
/// dqkv += the gradient. Uses 4 * time^2 bytes of scratch per calling thread.
TROUPE_API void attention_backward(float* dqkv, const float* dout, const float* qkv,
                                   const float* probabilities, std::int64_t batch,
                                   std::int64_t time, std::int64_t channels, std::int64_t heads);

}  // namespace troupe::kernels
