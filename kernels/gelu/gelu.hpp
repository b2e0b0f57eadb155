/// GELU in its tanh form (Hendrycks and Gimpel 2016, eq. 2):
/// gelu(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
///
///     gelu_forward(out, in, n);
///     gelu_backward(din, dout, in, n);
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <cstdint>

namespace troupe::kernels {

/// out[i] = gelu(in[i]); out may be in.
TROUPE_API void gelu_forward(float* out, const float* in, std::int64_t n);
/// din[i] += dout[i] * gelu'(in[i]).
TROUPE_API void gelu_backward(float* din, const float* dout, const float* in, std::int64_t n);

}  // namespace troupe::kernels
