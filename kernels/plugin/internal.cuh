/// Declarations and helpers that the units of the CUDA plug-in share. Compiled only: nothing here
/// has run on a device so far.
#pragma once

#include "troupe/kernels/device/table.hpp"

#include <cuda_runtime.h>

struct troupe_cuda_context {
  int device = 0;
  cudaStream_t stream = nullptr;
  void* products = nullptr;  ///< belongs to gemm.cu; made by the first product
  void* scratch = nullptr;
  size_t scratch_bytes = 0;
};

namespace troupe_cuda {

namespace kernels = troupe::kernels;
using kernels::Activation;
using kernels::DType;

constexpr int kThreads = 256;
constexpr int kWarp = 32;

/// Returns the number of blocks for a grid-stride loop over n elements.
inline unsigned blocks_for(int64_t n) {
  const int64_t blocks = (n + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks > 65535 ? 65535 : blocks);
}
/// The first element of this thread in a grid-stride loop, and the step to its next one.
__device__ inline int64_t first() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t stride() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

/// Calls f(i) for i in [0, n), each once and in no order.
template <class F>
__global__ void each_kernel(int64_t n, F f) {
  for (int64_t i = first(); i < n; i += stride()) f(i);
}
inline int launched() {
  return static_cast<int>(cudaGetLastError());
}
template <class F>
int each(troupe_cuda_context* c, int64_t n, const F& f) {
  if (n <= 0) return 0;
  each_kernel<<<blocks_for(n), kThreads, 0, c->stream>>>(n, f);
  return launched();
}

/// Returns the threads of a team, a block of one or eight warps that computes one row.
inline unsigned team_for(int64_t columns) {
  return columns <= 1024 ? kWarp : kThreads;
}
inline unsigned teams_for(int64_t rows) {
  return static_cast<unsigned>(rows<1 ? 1 : rows>(1 << 20) ? 1 << 20 : rows);
}

/// Returns the sum over a warp, the same in every lane and in a fixed order.
template <class T>
__device__ T warp_sum(T x) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
  return x;
}
__device__ inline float warp_max(float x) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    x = fmaxf(x, __shfl_xor_sync(~0u, x, offset));
  return x;
}

/// Combines one number per warp in the order of warps; every thread of the team gets the result.
template <class T, class F>
__device__ T across_warps(T x, F combine) {
  if (blockDim.x == kWarp) return x;
  __shared__ T warps[kThreads / kWarp];
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = x;
  __syncthreads();
  T total = warps[0];
  for (int i = 1; i < kThreads / kWarp; ++i) total = combine(total, warps[i]);
  __syncthreads();
  return total;
}
/// Returns the sum over a team, the same in every thread. All threads of the team must call it.
template <class T>
__device__ T team_sum(T x) {
  return across_warps(warp_sum(x), [](T a, T b) { return a + b; });
}
__device__ inline float team_max(float x) {
  return across_warps(warp_max(x), [](float a, float b) { return fmaxf(a, b); });
}

__host__ __device__ inline const float* floats(const void* memory) {
  return static_cast<const float*>(memory);
}
__host__ __device__ inline float* floats(void* memory) {
  return static_cast<float*>(memory);
}

/// Returns scratch memory of the context, valid until the next call with more bytes.
int scratch(troupe_cuda_context* c, size_t bytes, void** memory);

// gemm.cu
void destroy_products(troupe_cuda_context* c);

#define TROUPE_CUDA_ENTRY(name, Type) int name(troupe_cuda_context* c, const kernels::Type& o);
TROUPE_CUDA_OPERATIONS(TROUPE_CUDA_ENTRY)
#undef TROUPE_CUDA_ENTRY
int philox_normal(troupe_cuda_context* c, float* out, int64_t n, uint64_t seed, uint64_t stream,
                  uint64_t first, float mean, float deviation);

}  // namespace troupe_cuda
