// Kernels where an element of the result needs one element of each input.
#include "internal.cuh"

#include <cmath>

namespace troupe_cuda {
namespace {

constexpr float kRoot = 0.7978845608028654f;  // sqrt(2 / pi)
constexpr float kCubic = 0.044715f;

__global__ void add_bias_kernel(float* out, const float* bias, int64_t n, int64_t columns) {
  for (int64_t i = first(); i < n; i += stride()) out[i] += bias[i % columns];
}

__global__ void gelu_forward_kernel(float* out, const float* in, int64_t n) {
  for (int64_t i = first(); i < n; i += stride()) {
    const float x = in[i];
    out[i] = 0.5f * x * (1.0f + tanhf(kRoot * (x + kCubic * x * x * x)));
  }
}

__global__ void gelu_backward_kernel(float* din, const float* dout, const float* in, int64_t n) {
  for (int64_t i = first(); i < n; i += stride()) {
    const float x = in[i];
    const float t = tanhf(kRoot * (x + kCubic * x * x * x));
    const float slope = kRoot * (1.0f + 3.0f * kCubic * x * x);
    din[i] += dout[i] * (0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * slope);
  }
}

__global__ void fill_kernel(float* x, float value, int64_t n) {
  for (int64_t i = first(); i < n; i += stride()) x[i] = value;
}

__global__ void scale_kernel(float* x, float factor, int64_t n) {
  for (int64_t i = first(); i < n; i += stride()) x[i] *= factor;
}

__global__ void axpy_kernel(float* y, float factor, const float* x, int64_t n) {
  for (int64_t i = first(); i < n; i += stride()) y[i] += factor * x[i];
}

__global__ void add_kernel(float* out, const float* a, const float* b, int64_t n) {
  for (int64_t i = first(); i < n; i += stride()) out[i] = a[i] + b[i];
}

struct Factors {
  float keep, beta1, rest1, beta2, rest2, rate, root2, epsilon, scale;
};

__global__ void adamw_kernel(float* p, float* m, float* v, const float* g, int64_t n, Factors f) {
  for (int64_t i = first(); i < n; i += stride()) {
    const float gradient = g[i] * f.scale;
    const float m1 = f.beta1 * m[i] + f.rest1 * gradient;
    const float v1 = f.beta2 * v[i] + f.rest2 * (gradient * gradient);
    m[i] = m1;
    v[i] = v1;
    p[i] = p[i] * f.keep - f.rate * m1 / (sqrtf(v1) / f.root2 + f.epsilon);
  }
}

/// Sums over a block's threads in a fixed tree; the result is in thread 0.
__device__ double block_sum(double x) {
  __shared__ double shared[kThreads];
  shared[threadIdx.x] = x;
  __syncthreads();
  for (int width = kThreads / 2; width > 0; width /= 2) {
    if (static_cast<int>(threadIdx.x) < width) shared[threadIdx.x] += shared[threadIdx.x + width];
    __syncthreads();
  }
  return shared[0];
}

__global__ void squares_kernel(const float* x, int64_t n, double* partials) {
  double total = 0;
  for (int64_t i = first(); i < n; i += stride()) total += static_cast<double>(x[i]) * x[i];
  total = block_sum(total);
  if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

__global__ void total_kernel(double* partials, int count) {
  double total = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) total += partials[i];
  total = block_sum(total);
  if (threadIdx.x == 0) partials[0] = total;
}

__device__ uint4 philox4x32(uint4 counter, uint2 key) {
  for (int round = 0; round < 10; ++round) {
    const uint32_t high0 = __umulhi(0xD2511F53u, counter.x), low0 = 0xD2511F53u * counter.x;
    const uint32_t high1 = __umulhi(0xCD9E8D57u, counter.z), low1 = 0xCD9E8D57u * counter.z;
    counter = make_uint4(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
    key.x += 0x9E3779B9u;
    key.y += 0xBB67AE85u;
  }
  return counter;
}

__device__ uint32_t philox_bits(uint64_t seed, uint64_t stream, uint64_t index) {
  const uint64_t block = index / 4;
  const uint4 r =
      philox4x32(make_uint4(static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                            static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)),
                 make_uint2(static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)));
  const uint32_t words[4] = {r.x, r.y, r.z, r.w};
  return words[index % 4];
}

__global__ void normal_kernel(float* out, int64_t n, uint64_t seed, uint64_t stream_id,
                              uint64_t from, float mean, float deviation) {
  for (int64_t i = first(); i < n; i += stride()) {
    const uint64_t index = from + static_cast<uint64_t>(i), pair = index & ~uint64_t{1};
    const double u = (philox_bits(seed, stream_id, pair) + 0.5) * 0x1.0p-32;
    const double angle = 6.283185307179586 * (philox_bits(seed, stream_id, pair + 1) * 0x1.0p-32);
    const double radius = sqrt(-2.0 * log(u));
    out[i] = mean + deviation * static_cast<float>(radius * (index & 1 ? sin(angle) : cos(angle)));
  }
}

}  // namespace

int add_bias(troupe_cuda_context* c, float* out, const float* bias, int64_t rows, int64_t columns) {
  add_bias_kernel<<<blocks_for(rows * columns), kThreads, 0, c->stream>>>(out, bias, rows * columns,
                                                                          columns);
  return launched();
}

int gelu_forward(troupe_cuda_context* c, float* out, const float* in, int64_t n) {
  gelu_forward_kernel<<<blocks_for(n), kThreads, 0, c->stream>>>(out, in, n);
  return launched();
}

int gelu_backward(troupe_cuda_context* c, float* din, const float* dout, const float* in,
                  int64_t n) {
  gelu_backward_kernel<<<blocks_for(n), kThreads, 0, c->stream>>>(din, dout, in, n);
  return launched();
}

int fill(troupe_cuda_context* c, float* x, float value, int64_t n) {
  fill_kernel<<<blocks_for(n), kThreads, 0, c->stream>>>(x, value, n);
  return launched();
}

int scale(troupe_cuda_context* c, float* x, float factor, int64_t n) {
  scale_kernel<<<blocks_for(n), kThreads, 0, c->stream>>>(x, factor, n);
  return launched();
}

int axpy(troupe_cuda_context* c, float* y, float factor, const float* x, int64_t n) {
  axpy_kernel<<<blocks_for(n), kThreads, 0, c->stream>>>(y, factor, x, n);
  return launched();
}

int add(troupe_cuda_context* c, float* out, const float* a, const float* b, int64_t n) {
  add_kernel<<<blocks_for(n), kThreads, 0, c->stream>>>(out, a, b, n);
  return launched();
}

int adamw(troupe_cuda_context* c, float* p, float* m, float* v, const float* g, int64_t n,
          const troupe_cuda_adamw_step* s) {
  const double t = static_cast<double>(s->step);
  Factors f{};
  f.keep = static_cast<float>(1.0 - static_cast<double>(s->rate) * s->decay);
  f.beta1 = s->beta1;
  f.rest1 = 1.0f - s->beta1;
  f.beta2 = s->beta2;
  f.rest2 = 1.0f - s->beta2;
  f.rate = static_cast<float>(s->rate / (1.0 - std::pow(static_cast<double>(s->beta1), t)));
  f.root2 = static_cast<float>(std::sqrt(1.0 - std::pow(static_cast<double>(s->beta2), t)));
  f.epsilon = s->epsilon;
  f.scale = s->gradient_scale;
  adamw_kernel<<<blocks_for(n), kThreads, 0, c->stream>>>(p, m, v, g, n, f);
  return launched();
}

int sum_of_squares(troupe_cuda_context* c, const float* x, int64_t n, double* result) {
  const unsigned blocks = blocks_for(n) < kPartials ? blocks_for(n) : kPartials;
  squares_kernel<<<blocks, kThreads, 0, c->stream>>>(x, n, c->partials);
  total_kernel<<<1, kThreads, 0, c->stream>>>(c->partials, static_cast<int>(blocks));
  if (const int error = launched()) return error;
  if (const int error =
          cudaMemcpyAsync(result, c->partials, sizeof *result, cudaMemcpyDeviceToHost, c->stream))
    return error;
  return cudaStreamSynchronize(c->stream);
}

int philox_normal(troupe_cuda_context* c, float* out, int64_t n, uint64_t seed, uint64_t stream_id,
                  uint64_t from, float mean, float deviation) {
  normal_kernel<<<blocks_for(n), kThreads, 0, c->stream>>>(out, n, seed, stream_id, from, mean,
                                                           deviation);
  return launched();
}

}  // namespace troupe_cuda
