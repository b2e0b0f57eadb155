/// What the plug-in's units share.
#pragma once

#include "troupe/kernels/device/table.hpp"

#include <cuda_runtime.h>

struct troupe_cuda_context {
  int device = 0;
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;  ///< of cuBLASLt
  void* lt = nullptr;         ///< cublasLtHandle_t
  double* partials = nullptr;
};

namespace troupe_cuda {

constexpr size_t kWorkspace = size_t{32} << 20;  // what cuBLAS advises for Hopper
constexpr int kPartials = 1024;
constexpr int kThreads = 256;
constexpr int kWarp = 32;

/// Blocks for a grid-stride loop over n elements.
inline unsigned blocks_for(int64_t n) {
  const int64_t blocks = (n + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks > 65535 ? 65535 : blocks);
}

/// First element and step of this thread in a grid-stride loop.
__device__ inline int64_t first() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t stride() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

/// Sum over a warp, the same in every lane: the order is fixed.
__device__ inline float warp_sum(float x) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
  return x;
}
__device__ inline float warp_max(float x) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    x = fmaxf(x, __shfl_xor_sync(~0u, x, offset));
  return x;
}

/// Rows are dealt to warps, kThreads / kWarp warps a block.
inline unsigned blocks_for_rows(int64_t rows) {
  return blocks_for(rows * kWarp);
}
__device__ inline int64_t first_row() {
  return first() / kWarp;
}
__device__ inline int64_t row_stride() {
  return stride() / kWarp;
}
__device__ inline int lane() {
  return static_cast<int>(threadIdx.x) % kWarp;
}

inline int launched() {
  return static_cast<int>(cudaGetLastError());
}

// gemm.cu
int create_gemm(troupe_cuda_context* c);
void destroy_gemm(troupe_cuda_context* c);
int gemm(troupe_cuda_context* c, char a_op, char b_op, int64_t m, int64_t n, int64_t k,
         const float* a, int64_t lda, const float* b, int64_t ldb, float beta, float* out,
         int64_t ldc);
// attention.cu
int attention_forward(troupe_cuda_context*, float*, float*, const float*, int64_t, int64_t, int64_t,
                      int64_t);
int attention_backward(troupe_cuda_context*, float*, const float*, const float*, const float*,
                       float*, int64_t, int64_t, int64_t, int64_t);
// rows.cu
int add_bias_backward(troupe_cuda_context*, float*, const float*, int64_t, int64_t);
int layernorm_forward(troupe_cuda_context*, float*, float*, float*, const float*, const float*,
                      const float*, int64_t, int64_t);
int layernorm_backward_input(troupe_cuda_context*, float*, const float*, const float*, const float*,
                             const float*, const float*, int64_t, int64_t);
int layernorm_backward_weight(troupe_cuda_context*, float*, float*, const float*, const float*,
                              const float*, const float*, int64_t, int64_t);
int embedding_forward(troupe_cuda_context*, float*, const int32_t*, const float*, const float*,
                      int64_t, int64_t, int64_t);
int embedding_backward(troupe_cuda_context*, float*, float*, const float*, const int32_t*, int64_t,
                       int64_t, int64_t);
int cross_entropy_forward(troupe_cuda_context*, float*, const float*, const int32_t*, int64_t,
                          int64_t);
int cross_entropy_fused(troupe_cuda_context*, float*, float*, const int32_t*, int64_t, int64_t,
                        float);
// elementwise.cu
int add_bias(troupe_cuda_context*, float*, const float*, int64_t, int64_t);
int gelu_forward(troupe_cuda_context*, float*, const float*, int64_t);
int gelu_backward(troupe_cuda_context*, float*, const float*, const float*, int64_t);
int fill(troupe_cuda_context*, float*, float, int64_t);
int scale(troupe_cuda_context*, float*, float, int64_t);
int axpy(troupe_cuda_context*, float*, float, const float*, int64_t);
int add(troupe_cuda_context*, float*, const float*, const float*, int64_t);
int adamw(troupe_cuda_context*, float*, float*, float*, const float*, int64_t,
          const troupe_cuda_adamw_step*);
int sum_of_squares(troupe_cuda_context*, const float*, int64_t, double*);
int philox_normal(troupe_cuda_context*, float*, int64_t, uint64_t, uint64_t, uint64_t, float,
                  float);

}  // namespace troupe_cuda
