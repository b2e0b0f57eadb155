#include "troupe/kernels/embedding/embedding.hpp"

#include "troupe/kernels/internal/simd.hpp"

namespace troupe::kernels {

TROUPE_KERNEL void embedding_forward(float* out, const std::int32_t* tokens, const float* wte,
                                     const float* wpe, std::int64_t batch, std::int64_t time,
                                     std::int64_t channels) {
  for (std::int64_t row = 0; row < batch * time; ++row) {
    const float* token = wte + tokens[row] * channels;
    const float* position = wpe + row % time * channels;
    float* __restrict y = out + row * channels;
    for (std::int64_t c = 0; c < channels; ++c) y[c] = token[c] + position[c];
  }
}

TROUPE_KERNEL void embedding_backward(float* dwte, float* dwpe, const float* dout,
                                      const std::int32_t* tokens, std::int64_t batch,
                                      std::int64_t time, std::int64_t channels) {
  for (std::int64_t row = 0; row < batch * time; ++row) {
    const float* dy = dout + row * channels;
    float* __restrict token = dwte + tokens[row] * channels;
    float* __restrict position = dwpe + row % time * channels;
    for (std::int64_t c = 0; c < channels; ++c) token[c] += dy[c];
    for (std::int64_t c = 0; c < channels; ++c) position[c] += dy[c];
  }
}

}  // namespace troupe::kernels
