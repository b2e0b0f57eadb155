/// oneDNN's matmul primitive: faster than its sgemm where rows of a lie one after the other, and
/// able to add a bias.
#pragma once

#include "troupe/kernels/gemm/gemm.hpp"

namespace troupe::kernels::internal {

/// c[m, n] = a[m, k] * op(b)[k, n] + beta * c (+ bias[n]).
struct Matmul {
  Op b_op = Op::none;
  std::int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  std::int64_t lda = 0;
  const float* b = nullptr;
  std::int64_t ldb = 0;
  float beta = 0;
  float* c = nullptr;
  std::int64_t ldc = 0;
  const float* bias = nullptr;  ///< may be null
};

/// Finds the primitive in an open library; false when it has none or is not of version 2. Once,
/// before the first onednn_matmul().
bool open_onednn_matmul(void* library);

/// Computes on the calling thread. Returns false, and writes nothing, for shapes that are better
/// left to sgemm; that depends on the shape alone. The first call of a shape on a thread costs 0.2
/// to 20 ms: a primitive is compiled, and kept with at most kKept others.
bool onednn_matmul(const Matmul& x);
inline constexpr std::size_t kKept = 512;

/// The library's product in whatever way is fastest. Returns whether the bias has been added.
bool library_product(Op a_op, const Matmul& x);

}  // namespace troupe::kernels::internal
