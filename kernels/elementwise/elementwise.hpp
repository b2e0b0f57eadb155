/// Plain vector operations: fill, scale, axpy, residual addition, sums of several vectors.
///
///     add(out, a, b, n);                 // a residual connection
///     sum_of(out, parts, ranks, n);      // out = parts[0] + parts[1] + ..., in that order
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <cstdint>

namespace troupe::kernels {

/// x[i] = value.
TROUPE_API void fill(float* x, float value, std::int64_t n);
/// x[i] *= factor.
TROUPE_API void scale(float* x, float factor, std::int64_t n);
/// y[i] += factor * x[i].
TROUPE_API void axpy(float* y, float factor, const float* x, std::int64_t n);
/// out[i] = a[i] + b[i]; out may be a or b.
TROUPE_API void add(float* out, const float* a, const float* b, std::int64_t n);
/// dout flows to both branches of a residual: da[i] += dout[i], db[i] += dout[i].
TROUPE_API void add_backward(float* da, float* db, const float* dout, std::int64_t n);
/// out[i] = ((parts[0][i] + parts[1][i]) + parts[2][i]) + ... : ascending, whatever n is, so any
/// split of the range gives the same bits. out may be one of the parts. count is at least 1.
TROUPE_API void sum_of(float* out, const float* const* parts, std::int64_t count, std::int64_t n);

}  // namespace troupe::kernels
