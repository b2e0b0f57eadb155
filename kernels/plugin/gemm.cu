// Matrix products: cuBLASLt where it is linked, else a plain tiled kernel. fp32 throughout, no
// TF32.
#include "internal.cuh"

#ifdef TROUPE_HAVE_CUBLASLT
#include <cublasLt.h>
#endif

namespace troupe_cuda {
#ifdef TROUPE_HAVE_CUBLASLT
namespace {

/// Descriptors of one product; freed in any case.
struct Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  ~Plan() {
    if (preference) cublasLtMatmulPreferenceDestroy(preference);
    for (cublasLtMatrixLayout_t layout : {a, b, c})
      if (layout) cublasLtMatrixLayoutDestroy(layout);
    if (operation) cublasLtMatmulDescDestroy(operation);
  }
  /// The library is column-major: c^T = op(b)^T op(a)^T, so a and b change places.
  bool make(char a_op, char b_op, int64_t m, int64_t n, int64_t k, int64_t lda, int64_t ldb,
            int64_t ldc) {
    const cublasOperation_t first = b_op == 'N' ? CUBLAS_OP_N : CUBLAS_OP_T;
    const cublasOperation_t second = a_op == 'N' ? CUBLAS_OP_N : CUBLAS_OP_T;
    const size_t workspace = kWorkspace;
    auto rows = [](char op, int64_t none, int64_t transposed) {
      return static_cast<uint64_t>(op == 'N' ? none : transposed);
    };
    return !cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F) &&
           !cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                           sizeof first) &&
           !cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                           sizeof second) &&
           !cublasLtMatrixLayoutCreate(&a, CUDA_R_32F, rows(b_op, n, k), rows(b_op, k, n), ldb) &&
           !cublasLtMatrixLayoutCreate(&b, CUDA_R_32F, rows(a_op, k, m), rows(a_op, m, k), lda) &&
           !cublasLtMatrixLayoutCreate(&c, CUDA_R_32F, static_cast<uint64_t>(n),
                                       static_cast<uint64_t>(m), ldc) &&
           !cublasLtMatmulPreferenceCreate(&preference) &&
           !cublasLtMatmulPreferenceSetAttribute(
               preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
  }
};

}  // namespace

int create_gemm(troupe_cuda_context* c) {
  cublasLtHandle_t handle = nullptr;
  if (cublasLtCreate(&handle) != CUBLAS_STATUS_SUCCESS) return cudaErrorInitializationError;
  c->lt = handle;
  return cudaMalloc(&c->workspace, kWorkspace);
}

void destroy_gemm(troupe_cuda_context* c) {
  if (c->workspace) cudaFree(c->workspace);
  if (c->lt) cublasLtDestroy(static_cast<cublasLtHandle_t>(c->lt));
}

int gemm(troupe_cuda_context* c, char a_op, char b_op, int64_t m, int64_t n, int64_t k,
         const float* a, int64_t lda, const float* b, int64_t ldb, float beta, float* out,
         int64_t ldc) {
  if (m <= 0 || n <= 0) return 0;
  if (k <= 0) return cudaErrorInvalidValue;
  auto* handle = static_cast<cublasLtHandle_t>(c->lt);
  Plan plan;
  cublasLtMatmulHeuristicResult_t choice{};
  int found = 0;
  const float alpha = 1.0f;
  if (!plan.make(a_op, b_op, m, n, k, lda, ldb, ldc) ||
      cublasLtMatmulAlgoGetHeuristic(handle, plan.operation, plan.a, plan.b, plan.c, plan.c,
                                     plan.preference, 1, &choice, &found) ||
      found == 0)
    return cudaErrorNotSupported;
  const cublasStatus_t status =
      cublasLtMatmul(handle, plan.operation, &alpha, b, plan.a, a, plan.b, &beta, out, plan.c, out,
                     plan.c, &choice.algo, c->workspace, kWorkspace, c->stream);
  return status == CUBLAS_STATUS_SUCCESS ? 0 : static_cast<int>(cudaErrorUnknown);
}
#else
namespace {

constexpr int kTile = 16;

__global__ void gemm_kernel(bool a_flipped, bool b_flipped, int64_t m, int64_t n, int64_t k,
                            const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
                            float* c, int64_t ldc) {
  __shared__ float a_tile[kTile][kTile], b_tile[kTile][kTile];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kTile + threadIdx.x;
  for (int64_t top = static_cast<int64_t>(blockIdx.y) * kTile; top < m;
       top += static_cast<int64_t>(gridDim.y) * kTile) {
    const int64_t row = top + threadIdx.y;
    float total = 0;
    for (int64_t p0 = 0; p0 < k; p0 += kTile) {
      const int64_t pa = p0 + threadIdx.x, pb = p0 + threadIdx.y;
      a_tile[threadIdx.y][threadIdx.x] =
          row < m && pa < k ? (a_flipped ? a[pa * lda + row] : a[row * lda + pa]) : 0.0f;
      b_tile[threadIdx.y][threadIdx.x] =
          pb < k && column < n ? (b_flipped ? b[column * ldb + pb] : b[pb * ldb + column]) : 0.0f;
      __syncthreads();
      for (int p = 0; p < kTile; ++p) total += a_tile[threadIdx.y][p] * b_tile[p][threadIdx.x];
      __syncthreads();
    }
    if (row < m && column < n) {
      float* target = c + row * ldc + column;
      *target = beta == 0.0f ? total : total + beta * *target;
    }
  }
}

}  // namespace

int create_gemm(troupe_cuda_context*) {
  return 0;
}
void destroy_gemm(troupe_cuda_context*) {}

int gemm(troupe_cuda_context* c, char a_op, char b_op, int64_t m, int64_t n, int64_t k,
         const float* a, int64_t lda, const float* b, int64_t ldb, float beta, float* out,
         int64_t ldc) {
  if (m <= 0 || n <= 0) return 0;
  const int64_t rows = (m + kTile - 1) / kTile;
  const dim3 grid(static_cast<unsigned>((n + kTile - 1) / kTile),
                  static_cast<unsigned>(rows < 65535 ? rows : 65535));
  gemm_kernel<<<grid, dim3(kTile, kTile), 0, c->stream>>>(a_op == 'T', b_op == 'T', m, n, k, a, lda,
                                                          b, ldb, beta, out, ldc);
  return launched();
}
#endif

}  // namespace troupe_cuda
