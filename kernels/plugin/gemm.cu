// Matrix products: cuBLASLt where it is linked, else a plain tiled kernel; fp32 throughout, no
// TF32. Bias and activation follow in one pass of their own.
#include "activations.cuh"
#include "internal.cuh"

#ifdef TROUPE_HAVE_CUBLASLT
#include <cublasLt.h>
#endif

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <new>

namespace troupe_cuda {
namespace {

using kernels::Gemm;

/// c = beta * c, for k = 0.
int scale_c(troupe_cuda_context* c, const Gemm& o) {
  return each(c, o.batch * o.m * o.n, [=] __device__(int64_t i) {
    const int64_t at = i / (o.m * o.n) * o.c_stride + i / o.n % o.m * o.ldc + i % o.n;
    floats(o.c)[at] = o.beta == 0.0f ? 0.0f : o.beta * floats(o.c)[at];
  });
}

__device__ void finish_element(const Gemm& o, int64_t at, int64_t column) {
  float value = floats(o.c)[at];
  if (o.activation_backward) {
    floats(o.c)[at] = gradient_of(o.activation, floats(o.aux)[at], value);
    return;
  }
  if (o.bias != nullptr) value += floats(o.bias)[column];
  if (o.aux != nullptr) floats(o.aux)[at] = value;
  floats(o.c)[at] = value_of(o.activation, value);
}

int finish(troupe_cuda_context* c, const Gemm& o) {
  if (o.bias == nullptr && o.aux == nullptr && o.activation == Activation::none) return 0;
  return each(c, o.batch * o.m * o.n, [=] __device__(int64_t i) {
    finish_element(o, i / (o.m * o.n) * o.c_stride + i / o.n % o.m * o.ldc + i % o.n, i % o.n);
  });
}

#ifdef TROUPE_HAVE_CUBLASLT

/// Descriptors and the algorithm of one kind of product; freed in any case.
struct Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    if (preference) cublasLtMatmulPreferenceDestroy(preference);
    for (cublasLtMatrixLayout_t layout : {a, b, c})
      if (layout) cublasLtMatrixLayoutDestroy(layout);
    if (operation) cublasLtMatmulDescDestroy(operation);
  }
};

/// What decides on a plan: sizes, distances, transposes and how pointers are aligned.
using Key = std::array<int64_t, 15>;

constexpr size_t kWorkspace = size_t{32} << 20;  // what cuBLAS advises for Hopper

struct Products {
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  std::map<Key, std::unique_ptr<Plan>> plans;
  Products() = default;
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;
  ~Products() {
    plans.clear();
    if (workspace) cudaFree(workspace);
    if (handle) cublasLtDestroy(handle);
  }
};

/// The largest power of two, at most 256, that divides the address.
uint32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer) | 256;
  return static_cast<uint32_t>(address & (~address + 1));
}

Key key_of(const Gemm& o) {
  return {static_cast<int64_t>(o.a_op),
          static_cast<int64_t>(o.b_op),
          o.m,
          o.n,
          o.k,
          o.lda,
          o.ldb,
          o.ldc,
          o.batch,
          o.a_stride,
          o.b_stride,
          o.c_stride,
          alignment_of(o.a),
          alignment_of(o.b),
          alignment_of(o.c)};
}

bool layout(cublasLtMatrixLayout_t& to, const Gemm& o, int64_t rows, int64_t columns, int64_t pitch,
            int64_t apart) {
  const auto batch = static_cast<int32_t>(o.batch);
  return !cublasLtMatrixLayoutCreate(&to, CUDA_R_32F, static_cast<uint64_t>(rows),
                                     static_cast<uint64_t>(columns), pitch) &&
         !cublasLtMatrixLayoutSetAttribute(to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                           sizeof batch) &&
         !cublasLtMatrixLayoutSetAttribute(to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &apart,
                                           sizeof apart);
}

bool prefer(Plan& plan, const Gemm& o) {
  const size_t workspace = kWorkspace;
  const uint32_t first = alignment_of(o.b), second = alignment_of(o.a), third = alignment_of(o.c);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
    return !cublasLtMatmulPreferenceSetAttribute(plan.preference, name, &value, sizeof value);
  };
  return !cublasLtMatmulPreferenceCreate(&plan.preference) &&
         set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace) &&
         set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, first) &&
         set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, second) &&
         set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, third) &&
         set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, third);
}

/// The library is column-major: c^T = op(b)^T op(a)^T, so a and b change places.
bool make(Plan& plan, const Gemm& o) {
  const bool a_plain = o.a_op == kernels::Op::none, b_plain = o.b_op == kernels::Op::none;
  const cublasOperation_t first = b_plain ? CUBLAS_OP_N : CUBLAS_OP_T;
  const cublasOperation_t second = a_plain ? CUBLAS_OP_N : CUBLAS_OP_T;
  return !cublasLtMatmulDescCreate(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F) &&
         !cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                         sizeof first) &&
         !cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                         sizeof second) &&
         layout(plan.a, o, b_plain ? o.n : o.k, b_plain ? o.k : o.n, o.ldb, o.b_stride) &&
         layout(plan.b, o, a_plain ? o.k : o.m, a_plain ? o.m : o.k, o.lda, o.a_stride) &&
         layout(plan.c, o, o.n, o.m, o.ldc, o.c_stride) && prefer(plan, o);
}

/// Null when the library has no algorithm.
const Plan* plan_for(Products& products, const Gemm& o) {
  std::unique_ptr<Plan>& plan = products.plans[key_of(o)];
  if (plan) return plan.get();
  auto made = std::make_unique<Plan>();
  cublasLtMatmulHeuristicResult_t choice{};
  int found = 0;
  if (!make(*made, o) ||
      cublasLtMatmulAlgoGetHeuristic(products.handle, made->operation, made->a, made->b, made->c,
                                     made->c, made->preference, 1, &choice, &found) ||
      found == 0)
    return nullptr;
  made->algorithm = choice.algo;
  plan = std::move(made);
  return plan.get();
}

/// Made by the first product: a queue that only copies needs no workspace.
int open(troupe_cuda_context* c) {
  if (c->products) return 0;
  auto products = std::make_unique<Products>();
  if (cublasLtCreate(&products->handle) != CUBLAS_STATUS_SUCCESS)
    return cudaErrorInitializationError;
  if (const int error = cudaMalloc(&products->workspace, kWorkspace)) return error;
  c->products = products.release();
  return 0;
}

int multiply(troupe_cuda_context* c, const Gemm& o) {
  if (const int error = open(c)) return error;
  auto& products = *static_cast<Products*>(c->products);
  const Plan* plan = plan_for(products, o);
  if (plan == nullptr) return cudaErrorNotSupported;
  const float alpha = 1.0f;
  const cublasStatus_t status = cublasLtMatmul(
      products.handle, plan->operation, &alpha, o.b, plan->a, o.a, plan->b, &o.beta, o.c, plan->c,
      o.c, plan->c, &plan->algorithm, products.workspace, kWorkspace, c->stream);
  return status == CUBLAS_STATUS_SUCCESS ? 0 : static_cast<int>(cudaErrorUnknown);
}

#else

constexpr int kTile = 16;

/// One block per tile of c, tiles of k in ascending order.
__global__ void gemm_kernel(Gemm o, int64_t batch) {
  __shared__ float a_tile[kTile][kTile], b_tile[kTile][kTile];
  const bool a_flipped = o.a_op != kernels::Op::none, b_flipped = o.b_op != kernels::Op::none;
  const float *a = floats(o.a) + batch * o.a_stride, *b = floats(o.b) + batch * o.b_stride;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kTile + threadIdx.x;
  for (int64_t top = static_cast<int64_t>(blockIdx.y) * kTile; top < o.m;
       top += static_cast<int64_t>(gridDim.y) * kTile) {
    const int64_t row = top + threadIdx.y;
    float total = 0;
    for (int64_t p0 = 0; p0 < o.k; p0 += kTile) {
      const int64_t pa = p0 + threadIdx.x, pb = p0 + threadIdx.y;
      a_tile[threadIdx.y][threadIdx.x] =
          row < o.m && pa < o.k ? (a_flipped ? a[pa * o.lda + row] : a[row * o.lda + pa]) : 0.0f;
      b_tile[threadIdx.y][threadIdx.x] =
          pb < o.k && column < o.n ? (b_flipped ? b[column * o.ldb + pb] : b[pb * o.ldb + column])
                                   : 0.0f;
      __syncthreads();
      for (int p = 0; p < kTile; ++p) total += a_tile[threadIdx.y][p] * b_tile[p][threadIdx.x];
      __syncthreads();
    }
    if (row < o.m && column < o.n) {
      float* target = floats(o.c) + batch * o.c_stride + row * o.ldc + column;
      *target = o.beta == 0.0f ? total : total + o.beta * *target;
    }
  }
}

int multiply(troupe_cuda_context* c, const Gemm& o) {
  const int64_t rows = (o.m + kTile - 1) / kTile;
  const dim3 grid(static_cast<unsigned>((o.n + kTile - 1) / kTile),
                  static_cast<unsigned>(rows < 65535 ? rows : 65535));
  for (int64_t batch = 0; batch < o.batch; ++batch)
    gemm_kernel<<<grid, dim3(kTile, kTile), 0, c->stream>>>(o, batch);
  return launched();
}

struct Products {};

#endif

}  // namespace

void destroy_products(troupe_cuda_context* c) {
  delete static_cast<Products*>(c->products);
  c->products = nullptr;
}

int gemm(troupe_cuda_context* c, const Gemm& o) {
  if (o.c_type != DType::f32) return cudaErrorNotSupported;
  if (o.m <= 0 || o.n <= 0 || o.batch <= 0) return 0;
  try {
    if (const int error = o.k <= 0 ? scale_c(c, o) : multiply(c, o)) return error;
  } catch (const std::bad_alloc&) {
    return cudaErrorMemoryAllocation;
  }
  return finish(c, o);
}

}  // namespace troupe_cuda
