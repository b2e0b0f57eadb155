#include "troupe/kernels/elementwise/elementwise.hpp"

#include "troupe/kernels/internal/simd.hpp"

#include <algorithm>

namespace troupe::kernels {

TROUPE_KERNEL void fill(float* x, float value, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] = value;
}

TROUPE_KERNEL void scale(float* x, float factor, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factor;
}

TROUPE_KERNEL void axpy(float* y, float factor, const float* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

TROUPE_KERNEL void add(float* out, const float* a, const float* b, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

TROUPE_KERNEL void add_backward(float* da, float* db, const float* dout, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) da[i] += dout[i];
  for (std::int64_t i = 0; i < n; ++i) db[i] += dout[i];
}

TROUPE_KERNEL void sum_of(float* out, const float* const* parts, std::int64_t count,
                          std::int64_t n) {
  constexpr std::int64_t block = 512;  // stays in the first-level cache over all parts
  for (std::int64_t first = 0; first < n; first += block) {
    float total[block];
    const std::int64_t size = std::min(block, n - first);
    for (std::int64_t i = 0; i < size; ++i) total[i] = parts[0][first + i];
    for (std::int64_t p = 1; p < count; ++p)
      for (std::int64_t i = 0; i < size; ++i) total[i] += parts[p][first + i];
    for (std::int64_t i = 0; i < size; ++i) out[first + i] = total[i];
  }
}

}  // namespace troupe::kernels
