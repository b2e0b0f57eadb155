#include "troupe/kernels/attention/attention.hpp"

#include "troupe/kernels/gemm/gemm.hpp"
#include "troupe/kernels/internal/simd.hpp"

#include <cmath>
#include <vector>

namespace troupe::kernels {
namespace {

/// Row t becomes softmax(scale * row[0..t]), zero beyond t.
TROUPE_KERNEL void causal_softmax(float* scores, std::int64_t time, float scale) {
  for (std::int64_t t = 0; t < time; ++t) {
    float* row = scores + t * time;
    const float top = internal::maximum(row, t + 1);
    for (std::int64_t s = 0; s <= t; ++s) row[s] = internal::exp((row[s] - top) * scale);
    const float total = internal::sum<float>(t + 1, [=](std::int64_t s) { return row[s]; });
    const float inverse = 1.0f / total;
    for (std::int64_t s = 0; s <= t; ++s) row[s] *= inverse;
    for (std::int64_t s = t + 1; s < time; ++s) row[s] = 0.0f;
  }
}

/// dp becomes the gradient of the scores: scale * p * (dp - sum(p * dp)), zero beyond t.
TROUPE_KERNEL void causal_softmax_backward(float* dp, const float* p, std::int64_t time,
                                           float scale) {
  for (std::int64_t t = 0; t < time; ++t) {
    float* __restrict drow = dp + t * time;
    const float* row = p + t * time;
    const float dot = internal::sum<float>(t + 1, [=](std::int64_t s) { return row[s] * drow[s]; });
    for (std::int64_t s = 0; s <= t; ++s) drow[s] = scale * row[s] * (drow[s] - dot);
    for (std::int64_t s = t + 1; s < time; ++s) drow[s] = 0.0f;
  }
}

}  // namespace

void attention_forward(float* out, float* probabilities, const float* qkv, std::int64_t batch,
                       std::int64_t time, std::int64_t channels, std::int64_t heads) {
  const std::int64_t size = channels / heads, row = 3 * channels;
  const float scale = 1.0f / std::sqrt(static_cast<float>(size));
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const float* q = qkv + b * time * row + h * size;
      const float* k = q + channels;
      const float* v = k + channels;
      float* p = probabilities + (b * heads + h) * time * time;
      gemm(Op::none, Op::transpose, time, time, size, q, row, k, row, 0.0f, p, time);
      causal_softmax(p, time, scale);
      gemm(Op::none, Op::none, time, size, time, p, time, v, row, 0.0f,
           out + b * time * channels + h * size, channels);
    }
  }
}

void attention_backward(float* dqkv, const float* dout, const float* qkv,
                        const float* probabilities, std::int64_t batch, std::int64_t time,
                        std::int64_t channels, std::int64_t heads) {
  const std::int64_t size = channels / heads, row = 3 * channels;
  const float scale = 1.0f / std::sqrt(static_cast<float>(size));
  thread_local std::vector<float> scratch;
  if (scratch.size() < static_cast<std::size_t>(time * time))
    scratch.resize(static_cast<std::size_t>(time * time));
  float* ds = scratch.data();
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const float* q = qkv + b * time * row + h * size;
      const float* k = q + channels;
      const float* v = k + channels;
      float* dq = dqkv + b * time * row + h * size;
      float* dk = dq + channels;
      float* dv = dk + channels;
      const float* dy = dout + b * time * channels + h * size;
      const float* p = probabilities + (b * heads + h) * time * time;
      gemm(Op::transpose, Op::none, time, size, time, p, time, dy, channels, 1.0f, dv, row);
      gemm(Op::none, Op::transpose, time, time, size, dy, channels, v, row, 0.0f, ds, time);
      causal_softmax_backward(ds, p, time, scale);
      gemm(Op::none, Op::none, time, size, time, ds, time, k, row, 1.0f, dq, row);
      gemm(Op::transpose, Op::none, time, size, time, ds, time, q, row, 1.0f, dk, row);
    }
  }
}

}  // namespace troupe::kernels
