#include "troupe/kernels/gelu/gelu.hpp"

#include "troupe/kernels/internal/simd.hpp"

namespace troupe::kernels {
namespace {
constexpr float kRoot = 0.7978845608028654f;  // sqrt(2 / pi)
constexpr float kCubic = 0.044715f;
}  // namespace

TROUPE_KERNEL void gelu_forward(float* out, const float* in, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float x = in[i];
    out[i] = 0.5f * x * (1.0f + internal::tanh(kRoot * (x + kCubic * x * x * x)));
  }
}

TROUPE_KERNEL void gelu_backward(float* din, const float* dout, const float* in, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float x = in[i];
    const float t = internal::tanh(kRoot * (x + kCubic * x * x * x));
    const float slope = kRoot * (1.0f + 3.0f * kCubic * x * x);
    din[i] += dout[i] * (0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * slope);
  }
}

}  // namespace troupe::kernels
