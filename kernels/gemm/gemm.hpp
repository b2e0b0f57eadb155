/// Matrix products of row-major float matrices.
///
///     // y[rows, out] = x[rows, in] * w[out, in]^T
///     gemm(Op::none, Op::transpose, rows, out, in, x, in, w, in, 0, y, out);
///
/// gemm() runs on the BLAS library of blas.hpp when one is found, else on builtin_gemm().
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <cstdint>

namespace troupe::kernels {

enum class Op : char { none = 'N', transpose = 'T' };

/// Computes c[m, n] = op(a)[m, k] * op(b)[k, n] + beta * c. `lda`, `ldb` and `ldc` are the elements
/// from row to row as stored: at least the length of a stored row. With beta 0, c is written and
/// never read. Any size may be 0. The call computes on the calling thread only; many threads may
/// call it at once. The library decides the order of summation: it is the same for equal shapes,
/// but differs between libraries.
TROUPE_API void gemm(Op a_op, Op b_op, std::int64_t m, std::int64_t n, std::int64_t k,
                     const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta,
                     float* c, std::int64_t ldc);

/// The same without a library: packed and cache-blocked (Goto and van de Geijn 2008). Each element
/// is summed over k in ascending order, so that its bits depend neither on shape nor on machine.
TROUPE_API void builtin_gemm(Op a_op, Op b_op, std::int64_t m, std::int64_t n, std::int64_t k,
                             const float* a, std::int64_t lda, const float* b, std::int64_t ldb,
                             float beta, float* c, std::int64_t ldc);

}  // namespace troupe::kernels
