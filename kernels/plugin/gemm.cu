// Matrix products: by cuBLASLt if it is linked and has an algorithm, else by a plain tiled kernel.
// All sums are f32, and no product uses TF32. Bias and activation follow in a pass of their own.
// For a 16-bit result that pass reads f32 sums, so that the result is rounded once.
#include "activations.cuh"
#include "internal.cuh"
#include "numbers.cuh"

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

/// Returns the place of element i of the results in c and in aux.
__device__ int64_t place_of(const Gemm& o, int64_t i) {
  return i / (o.m * o.n) * o.c_stride + i / o.n % o.m * o.ldc + i % o.n;
}

/// c = beta * c, for k = 0.
template <class C>
int scale_c(troupe_cuda_context* c, const Gemm& o) {
  return each(c, o.batch * o.m * o.n, [=] __device__(int64_t i) {
    const int64_t at = place_of(o, i);
    store<C>(o.c, at, o.beta == 0.0f ? 0.0f : o.beta * load<C>(o.c, at));
  });
}

bool has_epilogue(const Gemm& o) {
  return o.bias != nullptr || o.aux != nullptr || o.activation != Activation::none;
}

/// Applies bias and activation to one element. T is the type of bias and aux, C that of c; `value`
/// is the product plus beta * c.
template <class T, class C>
__device__ void finish_element(const Gemm& o, float value, int64_t at, int64_t column) {
  if (o.activation_backward) {
    store<C>(o.c, at, gradient_of(o.activation, load<T>(o.aux, at), value));
    return;
  }
  if (o.bias != nullptr) value += load<T>(o.bias, column);
  if (o.aux != nullptr) store<T>(o.aux, at, value);
  store<C>(o.c, at, value_of(o.activation, value));
}

/// Applies bias and activation to sums that are in c.
template <class T, class C>
int finish(troupe_cuda_context* c, const Gemm& o) {
  return each(c, o.batch * o.m * o.n, [=] __device__(int64_t i) {
    const int64_t at = place_of(o, i);
    finish_element<T, C>(o, load<C>(o.c, at), at, i % o.n);
  });
}

/// Applies beta, bias and activation to products that are contiguous in `sums`; c has its old
/// values.
template <class T>
int finish_apart(troupe_cuda_context* c, const Gemm& o, const float* sums) {
  return each(c, o.batch * o.m * o.n, [=] __device__(int64_t i) {
    const int64_t at = place_of(o, i);
    const float old = o.beta == 0.0f ? 0.0f : o.beta * load<T>(o.c, at);
    finish_element<T, T>(o, sums[i] + old, at, i % o.n);
  });
}

constexpr int kTile = 16;

/// Computes one tile of c per block; tiles of k are added in ascending order.
template <class T, class C>
__global__ void gemm_kernel(Gemm o, int64_t batch) {
  __shared__ float a_tile[kTile][kTile], b_tile[kTile][kTile];
  const bool a_flipped = o.a_op != kernels::Op::none, b_flipped = o.b_op != kernels::Op::none;
  const T* a = static_cast<const T*>(o.a) + batch * o.a_stride;
  const T* b = static_cast<const T*>(o.b) + batch * o.b_stride;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kTile + threadIdx.x;
  for (int64_t top = static_cast<int64_t>(blockIdx.y) * kTile; top < o.m;
       top += static_cast<int64_t>(gridDim.y) * kTile) {
    const int64_t row = top + threadIdx.y;
    float total = 0;
    for (int64_t p0 = 0; p0 < o.k; p0 += kTile) {
      const int64_t pa = p0 + threadIdx.x, pb = p0 + threadIdx.y;
      const int64_t a_at = a_flipped ? pa * o.lda + row : row * o.lda + pa;
      const int64_t b_at = b_flipped ? column * o.ldb + pb : pb * o.ldb + column;
      a_tile[threadIdx.y][threadIdx.x] = row < o.m && pa < o.k ? widen(a[a_at]) : 0.0f;
      b_tile[threadIdx.y][threadIdx.x] = pb < o.k && column < o.n ? widen(b[b_at]) : 0.0f;
      __syncthreads();
      for (int p = 0; p < kTile; ++p) total += a_tile[threadIdx.y][p] * b_tile[p][threadIdx.x];
      __syncthreads();
    }
    if (row < o.m && column < o.n) {
      const int64_t at = batch * o.c_stride + row * o.ldc + column;
      store<C>(o.c, at, o.beta == 0.0f ? total : total + o.beta * load<C>(o.c, at));
    }
  }
}

template <class T, class C>
int multiply_plainly(troupe_cuda_context* c, const Gemm& o) {
  const int64_t rows = (o.m + kTile - 1) / kTile;
  const dim3 grid(static_cast<unsigned>((o.n + kTile - 1) / kTile),
                  static_cast<unsigned>(rows < 65535 ? rows : 65535));
  for (int64_t batch = 0; batch < o.batch; ++batch)
    gemm_kernel<T, C><<<grid, dim3(kTile, kTile), 0, c->stream>>>(o, batch);
  return launched();
}

#ifdef TROUPE_HAVE_CUBLASLT

/// The cuBLASLt descriptors and the algorithm of one kind of product. The destructor frees what was
/// made, also after a failure.
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

/// The properties of a product that a plan depends on: types, transposes, sizes, strides and the
/// alignment of pointers.
using Key = std::array<int64_t, 17>;

constexpr size_t kWorkspace = size_t{32} << 20;  // as cuBLAS advises for Hopper

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

/// Returns the largest power of two, at most 256, that divides the address.
uint32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer) | 256;
  return static_cast<uint32_t>(address & (~address + 1));
}

Key key_of(const Gemm& o) {
  return {static_cast<int64_t>(o.type),
          static_cast<int64_t>(o.c_type),
          static_cast<int64_t>(o.a_op),
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

cudaDataType_t cuda_type_of(DType type) {
  return type == DType::bf16 ? CUDA_R_16BF : type == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

bool layout(cublasLtMatrixLayout_t& to, const Gemm& o, DType type, int64_t rows, int64_t columns,
            int64_t pitch, int64_t apart) {
  const auto batch = static_cast<int32_t>(o.batch);
  return !cublasLtMatrixLayoutCreate(&to, cuda_type_of(type), static_cast<uint64_t>(rows),
                                     static_cast<uint64_t>(columns), pitch) &&
         !cublasLtMatrixLayoutSetAttribute(to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                           sizeof batch) &&
         !cublasLtMatrixLayoutSetAttribute(to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &apart,
                                           sizeof apart);
}

/// Returns the allowed ways to combine partial sums. For a 16-bit result they must be kept in f32,
/// so that the result is rounded once.
uint32_t reductions_of(const Gemm& o) {
  return o.c_type == DType::f32 ? CUBLASLT_REDUCTION_SCHEME_MASK
                                : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

bool prefer(Plan& plan, const Gemm& o) {
  const size_t workspace = kWorkspace;
  const uint32_t first = alignment_of(o.b), second = alignment_of(o.a), third = alignment_of(o.c);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
    return !cublasLtMatmulPreferenceSetAttribute(plan.preference, name, &value, sizeof value);
  };
  return !cublasLtMatmulPreferenceCreate(&plan.preference) &&
         set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace) &&
         set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions_of(o)) &&
         set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, first) &&
         set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, second) &&
         set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, third) &&
         set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, third);
}

/// Makes the descriptors. cuBLASLt is column-major, hence computes c^T = op(b)^T op(a)^T: a and b
/// change places.
bool make(Plan& plan, const Gemm& o) {
  const bool a_plain = o.a_op == kernels::Op::none, b_plain = o.b_op == kernels::Op::none;
  const cublasOperation_t first = b_plain ? CUBLAS_OP_N : CUBLAS_OP_T;
  const cublasOperation_t second = a_plain ? CUBLAS_OP_N : CUBLAS_OP_T;
  return !cublasLtMatmulDescCreate(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F) &&
         !cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                         sizeof first) &&
         !cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                         sizeof second) &&
         layout(plan.a, o, o.type, b_plain ? o.n : o.k, b_plain ? o.k : o.n, o.ldb, o.b_stride) &&
         layout(plan.b, o, o.type, a_plain ? o.k : o.m, a_plain ? o.m : o.k, o.lda, o.a_stride) &&
         layout(plan.c, o, o.c_type, o.n, o.m, o.ldc, o.c_stride) && prefer(plan, o);
}

/// Returns the plan for a product, made at its first use; null when the library has no algorithm.
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

/// Makes the cuBLASLt handle and workspace at the first product. A queue that only copies never
/// needs them.
int open(troupe_cuda_context* c) {
  if (c->products) return 0;
  auto products = std::make_unique<Products>();
  if (cublasLtCreate(&products->handle) != CUBLAS_STATUS_SUCCESS)
    return cudaErrorInitializationError;
  if (const int error = cudaMalloc(&products->workspace, kWorkspace)) return error;
  c->products = products.release();
  return 0;
}

template <class T, class C>
int multiply(troupe_cuda_context* c, const Gemm& o) {
  if (const int error = open(c)) return error;
  auto& products = *static_cast<Products*>(c->products);
  const Plan* plan = plan_for(products, o);
  if (plan == nullptr) return multiply_plainly<T, C>(c, o);
  const float alpha = 1.0f;
  const cublasStatus_t status = cublasLtMatmul(
      products.handle, plan->operation, &alpha, o.b, plan->a, o.a, plan->b, &o.beta, o.c, plan->c,
      o.c, plan->c, &plan->algorithm, products.workspace, kWorkspace, c->stream);
  return status == CUBLAS_STATUS_SUCCESS ? 0 : static_cast<int>(cudaErrorUnknown);
}

#else

struct Products {};

template <class T, class C>
int multiply(troupe_cuda_context* c, const Gemm& o) {
  return multiply_plainly<T, C>(c, o);
}

#endif

template <class T, class C>
int product(troupe_cuda_context* c, const Gemm& o) {
  return o.k <= 0 ? scale_c<C>(c, o) : multiply<T, C>(c, o);
}

template <class T, class C>
int in_c(troupe_cuda_context* c, const Gemm& o) {
  if (const int error = product<T, C>(c, o)) return error;
  return has_epilogue(o) ? finish<T, C>(c, o) : 0;
}

/// Computes a 16-bit result with an epilogue: the f32 products stay in scratch memory until the
/// epilogue rounds them.
template <class T>
int through_scratch(troupe_cuda_context* c, const Gemm& o) {
  void* sums = nullptr;
  const size_t bytes = static_cast<size_t>(o.batch * o.m * o.n) * sizeof(float);
  if (const int error = scratch(c, bytes, &sums)) return error;
  Gemm apart = o;
  apart.c_type = DType::f32;
  apart.c = sums;
  apart.beta = 0;
  apart.ldc = o.n;
  apart.c_stride = o.m * o.n;
  if (const int error = product<T, float>(c, apart)) return error;
  return finish_apart<T>(c, o, floats(sums));
}

template <class T>
int of_types(troupe_cuda_context* c, const Gemm& o) {
  if (o.c_type == DType::f32) return in_c<T, float>(c, o);
  if (o.c_type != o.type) return cudaErrorNotSupported;
  return has_epilogue(o) ? through_scratch<T>(c, o) : in_c<T, T>(c, o);
}

}  // namespace

void destroy_products(troupe_cuda_context* c) {
  delete static_cast<Products*>(c->products);
  c->products = nullptr;
}

int gemm(troupe_cuda_context* c, const Gemm& o) {
  if (o.m <= 0 || o.n <= 0 || o.batch <= 0) return 0;
  try {
    return of_type(o.type, [&]<class T>(T) { return of_types<T>(c, o); });
  } catch (const std::bad_alloc&) {
    return cudaErrorMemoryAllocation;
  }
}

}  // namespace troupe_cuda
