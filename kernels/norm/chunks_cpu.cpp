#include "troupe/kernels/internal/cpu.hpp"
#include "troupe/kernels/internal/operations.hpp"
#include "troupe/kernels/internal/simd.hpp"

namespace troupe::kernels::cpu {
namespace {

/// Sums squares in f64, in a fixed order of 16 lanes: relative error about 1e-15. The result is not
/// finite if an element is not.
TROUPE_KERNEL double sum_of_squares(const float* x, std::int64_t n) {
  return internal::sum<double>(n, [=](std::int64_t i) {
    const double value = x[i];
    return value * value;
  });
}

}  // namespace

void chunk_squares(Queue& queue, const ChunkSquares& o) {
  const std::int64_t chunks = (o.n + o.chunk - 1) / o.chunk;
  internal::parallel(queue, chunks, internal::grain(o.chunk, internal::kCheap),
                     [&](std::int64_t first, std::int64_t end) {
                       for (std::int64_t i = first; i < end; ++i)
                         o.out[i] = sum_of_squares(o.x + i * o.chunk,
                                                   std::min(o.chunk, o.n - i * o.chunk));
                     });
}

}  // namespace troupe::kernels::cpu
