// Causal attention, one warp per (batch, head, query): exact and in a fixed order; not fused or
// tiled.
#include "internal.cuh"

namespace troupe_cuda {
namespace {

struct Shape {
  int64_t batch, time, channels, heads, size;
  float scale;
  __device__ int64_t rows() const { return batch * heads * time; }
};

/// Where row (b, h, t) of q lies; k and v follow at + channels and + 2 * channels.
__device__ int64_t query(const Shape& s, int64_t row) {
  const int64_t t = row % s.time, head = row / s.time % s.heads, b = row / s.time / s.heads;
  return (b * s.time + t) * 3 * s.channels + head * s.size;
}
__device__ int64_t output(const Shape& s, int64_t row) {
  const int64_t t = row % s.time, head = row / s.time % s.heads, b = row / s.time / s.heads;
  return (b * s.time + t) * s.channels + head * s.size;
}

__device__ float dot(const float* a, const float* b, int64_t n) {
  float total = 0;
  for (int64_t i = 0; i < n; ++i) total += a[i] * b[i];
  return total;
}

__global__ void forward_kernel(float* out, float* probabilities, const float* qkv, Shape s) {
  for (int64_t row = first_row(); row < s.rows(); row += row_stride()) {
    const int64_t t = row % s.time, at = query(s, row), pitch = 3 * s.channels;
    const float* key0 = qkv + at + s.channels - t * pitch;  // key of position 0
    float* p = probabilities + row * s.time;
    float top = -INFINITY, total = 0;
    for (int64_t j = lane(); j <= t; j += kWarp) {
      p[j] = s.scale * dot(qkv + at, key0 + j * pitch, s.size);
      top = fmaxf(top, p[j]);
    }
    top = warp_max(top);
    for (int64_t j = lane(); j <= t; j += kWarp) total += p[j] = expf(p[j] - top);
    total = warp_sum(total);
    for (int64_t j = lane(); j < s.time; j += kWarp) p[j] = j <= t ? p[j] / total : 0.0f;
    __syncwarp();
    for (int64_t i = lane(); i < s.size; i += kWarp) {
      float sum = 0;
      for (int64_t j = 0; j <= t; ++j) sum += p[j] * key0[s.channels + j * pitch + i];
      out[output(s, row) + i] = sum;
    }
  }
}

/// ds = scale * p * (dp - sum(p * dp)) into scratch; dq += ds k.
__global__ void query_backward_kernel(float* dqkv, const float* dout, const float* qkv,
                                      const float* probabilities, float* scratch, Shape s) {
  for (int64_t row = first_row(); row < s.rows(); row += row_stride()) {
    const int64_t t = row % s.time, at = query(s, row), pitch = 3 * s.channels;
    const float* key0 = qkv + at + s.channels - t * pitch;
    const float* dy = dout + output(s, row);
    const float* p = probabilities + row * s.time;
    float* ds = scratch + row * s.time;
    float mixed = 0;
    for (int64_t j = lane(); j <= t; j += kWarp) {
      ds[j] = dot(dy, key0 + s.channels + j * pitch, s.size);
      mixed += p[j] * ds[j];
    }
    mixed = warp_sum(mixed);
    for (int64_t j = lane(); j <= t; j += kWarp) ds[j] = s.scale * p[j] * (ds[j] - mixed);
    __syncwarp();
    for (int64_t i = lane(); i < s.size; i += kWarp) {
      float sum = 0;
      for (int64_t j = 0; j <= t; ++j) sum += ds[j] * key0[j * pitch + i];
      dqkv[at + i] += sum;
    }
  }
}

/// dk += ds^T q and dv += p^T dout: the row is a key here.
__global__ void key_backward_kernel(float* dqkv, const float* dout, const float* qkv,
                                    const float* probabilities, const float* scratch, Shape s) {
  for (int64_t row = first_row(); row < s.rows(); row += row_stride()) {
    const int64_t j = row % s.time, at = query(s, row), pitch = 3 * s.channels;
    const int64_t head_row = row - j;  // query row of position 0
    for (int64_t i = lane(); i < s.size; i += kWarp) {
      float dk = 0, dv = 0;
      for (int64_t t = j; t < s.time; ++t) {
        dk += scratch[(head_row + t) * s.time + j] * qkv[at + (t - j) * pitch + i];
        dv += probabilities[(head_row + t) * s.time + j] *
              dout[output(s, row) + (t - j) * s.channels + i];
      }
      dqkv[at + s.channels + i] += dk;
      dqkv[at + 2 * s.channels + i] += dv;
    }
  }
}

Shape shape(int64_t batch, int64_t time, int64_t channels, int64_t heads) {
  const int64_t size = channels / heads;
  return {batch, time, channels, heads, size, 1.0f / sqrtf(static_cast<float>(size))};
}

}  // namespace

int attention_forward(troupe_cuda_context* c, float* out, float* probabilities, const float* qkv,
                      int64_t batch, int64_t time, int64_t channels, int64_t heads) {
  forward_kernel<<<blocks_for_rows(batch * heads * time), kThreads, 0, c->stream>>>(
      out, probabilities, qkv, shape(batch, time, channels, heads));
  return launched();
}

int attention_backward(troupe_cuda_context* c, float* dqkv, const float* dout, const float* qkv,
                       const float* probabilities, float* scratch, int64_t batch, int64_t time,
                       int64_t channels, int64_t heads) {
  const Shape s = shape(batch, time, channels, heads);
  const unsigned blocks = blocks_for_rows(batch * heads * time);
  query_backward_kernel<<<blocks, kThreads, 0, c->stream>>>(dqkv, dout, qkv, probabilities, scratch,
                                                            s);
  key_backward_kernel<<<blocks, kThreads, 0, c->stream>>>(dqkv, dout, qkv, probabilities, scratch,
                                                          s);
  return launched();
}

}  // namespace troupe_cuda
