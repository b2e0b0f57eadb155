#include "troupe/kernels/layernorm/layernorm.hpp"

#include "troupe/kernels/internal/simd.hpp"

#include <cmath>

namespace troupe::kernels {
namespace {
constexpr float kEpsilon = 1e-5f;
}

TROUPE_KERNEL void layernorm_forward(float* out, float* mean, float* rstd, const float* in,
                                     const float* weight, const float* bias, std::int64_t rows,
                                     std::int64_t channels) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* x = in + r * channels;
    float* __restrict y = out + r * channels;
    const float count = static_cast<float>(channels);
    const float m = internal::sum<float>(channels, [=](std::int64_t c) { return x[c]; }) / count;
    const float variance =
        internal::sum<float>(channels, [=](std::int64_t c) { return (x[c] - m) * (x[c] - m); }) /
        count;
    const float s = 1.0f / std::sqrt(variance + kEpsilon);
    if (bias != nullptr)
      for (std::int64_t c = 0; c < channels; ++c) y[c] = (x[c] - m) * s * weight[c] + bias[c];
    else
      for (std::int64_t c = 0; c < channels; ++c) y[c] = (x[c] - m) * s * weight[c];
    mean[r] = m;
    rstd[r] = s;
  }
}

TROUPE_KERNEL void layernorm_backward_input(float* din, const float* dout, const float* in,
                                            const float* weight, const float* mean,
                                            const float* rstd, std::int64_t rows,
                                            std::int64_t channels) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* x = in + r * channels;
    const float* dy = dout + r * channels;
    float* __restrict dx = din + r * channels;
    const float m = mean[r], s = rstd[r];
    const float count = static_cast<float>(channels);
    const float average =
        internal::sum<float>(channels, [=](std::int64_t c) { return weight[c] * dy[c]; }) / count;
    const float slope =
        internal::sum<float>(channels,
                             [=](std::int64_t c) { return weight[c] * dy[c] * ((x[c] - m) * s); }) /
        count;
    for (std::int64_t c = 0; c < channels; ++c)
      dx[c] += (weight[c] * dy[c] - average - (x[c] - m) * s * slope) * s;
  }
}

TROUPE_KERNEL void layernorm_backward_weight(float* dweight, float* dbias, const float* dout,
                                             const float* in, const float* mean, const float* rstd,
                                             std::int64_t rows, std::int64_t channels) {
  float* __restrict dw = dweight;
  float* __restrict db = dbias;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* x = in + r * channels;
    const float* dy = dout + r * channels;
    const float m = mean[r], s = rstd[r];
    for (std::int64_t c = 0; c < channels; ++c) dw[c] += dy[c] * ((x[c] - m) * s);
    if (db != nullptr)
      for (std::int64_t c = 0; c < channels; ++c) db[c] += dy[c];
  }
}

}  // namespace troupe::kernels
