/// Layer normalisation over the last dimension (Ba, Kiros, Hinton 2016), epsilon 1e-5.
///
///     layernorm_forward(out, mean, rstd, in, weight, bias, rows, channels);
///     layernorm_backward_input(din, dout, in, weight, mean, rstd, rows, channels);
///     layernorm_backward_weight(dweight, dbias, dout, in, mean, rstd, rows, channels);
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <cstdint>

namespace troupe::kernels {

/// out[r, c] = (in - mean[r]) * rstd[r] * weight[c] + bias[c]. Writes mean[rows] and rstd[rows] for
/// the backward pass; bias may be null.
TROUPE_API void layernorm_forward(float* out, float* mean, float* rstd, const float* in,
                                  const float* weight, const float* bias, std::int64_t rows,
                                  std::int64_t channels);
/// din += the gradient with respect to in.
TROUPE_API void layernorm_backward_input(float* din, const float* dout, const float* in,
                                         const float* weight, const float* mean, const float* rstd,
                                         std::int64_t rows, std::int64_t channels);
/// dweight[c] and dbias[c] (may be null) += theirs, rows ascending.
TROUPE_API void layernorm_backward_weight(float* dweight, float* dbias, const float* dout,
                                          const float* in, const float* mean, const float* rstd,
                                          std::int64_t rows, std::int64_t channels);

}  // namespace troupe::kernels
