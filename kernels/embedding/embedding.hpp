/// Token and position embedding: out[b, t] = tokens_table[token] + positions_table[t].
///
///     embedding_forward(out, tokens, wte, wpe, batch, time, channels);
///     embedding_backward(dwte, dwpe, dout, tokens, batch, time, channels);
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <cstdint>

namespace troupe::kernels {

/// out[batch, time, channels]; every token must be a row of wte (the caller checks).
TROUPE_API void embedding_forward(float* out, const std::int32_t* tokens, const float* wte,
                                  const float* wpe, std::int64_t batch, std::int64_t time,
                                  std::int64_t channels);
/// dwte[token] and dwpe[t] += dout[b, t], in ascending (b, t).
TROUPE_API void embedding_backward(float* dwte, float* dwpe, const float* dout,
                                   const std::int32_t* tokens, std::int64_t batch,
                                   std::int64_t time, std::int64_t channels);

}  // namespace troupe::kernels
