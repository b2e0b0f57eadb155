#include "troupe/kernels/internal/cpu.hpp"
#include "troupe/kernels/internal/operations.hpp"

#include <cstring>

namespace troupe::kernels::cpu {
namespace {
using internal::pointer;

constexpr std::int64_t kTile = 16;

/// Writes rows [first, end) of out[b, a] = in[a, b], in tiles that fit the first-level cache.
template <class T>
void turn_tiles(const T* in, T* out, const Transpose& o, std::int64_t first, std::int64_t end) {
  for (std::int64_t b0 = first; b0 < end; b0 += kTile)
    for (std::int64_t a0 = 0; a0 < o.a; a0 += kTile)
      for (std::int64_t b = b0; b < std::min(b0 + kTile, end); ++b)
        for (std::int64_t a = a0; a < std::min(a0 + kTile, o.a); ++a)
          out[b * o.a + a] = in[a * o.b + b];
}

/// The same for elements of `inner` bytes.
void turn_runs(const char* in, char* out, const Transpose& o, std::int64_t inner,
               std::int64_t first, std::int64_t end) {
  for (std::int64_t b = first; b < end; ++b)
    for (std::int64_t a = 0; a < o.a; ++a)
      std::memcpy(out + (b * o.a + a) * inner, in + (a * o.b + b) * inner,
                  static_cast<std::size_t>(inner));
}

/// Divides rows [first, end) of the result, counted over all matrices, into runs within one matrix:
/// calls turn(first element of the matrix, first row, end row) for each.
template <class Turn>
void for_matrices(const Transpose& o, std::int64_t first, std::int64_t end, const Turn& turn) {
  while (first < end) {
    const std::int64_t matrix = first / o.b, from = first % o.b;
    const std::int64_t n = std::min(o.b - from, end - first);
    turn(matrix * o.a * o.b, from, from + n);
    first += n;
  }
}

void turn_part(const Transpose& o, std::int64_t first, std::int64_t end) {
  const std::int64_t size = o.inner * size_of(o.type);
  for_matrices(o, first, end, [&](std::int64_t at, std::int64_t from, std::int64_t to) {
    if (o.inner == 1 && size == 4)
      turn_tiles(pointer<std::uint32_t>(o.in) + at, pointer<std::uint32_t>(o.out) + at, o, from,
                 to);
    else if (o.inner == 1 && size == 8)
      turn_tiles(pointer<std::uint64_t>(o.in) + at, pointer<std::uint64_t>(o.out) + at, o, from,
                 to);
    else
      turn_runs(pointer<char>(o.in) + at * size, pointer<char>(o.out) + at * size, o, size, from,
                to);
  });
}

}  // namespace

void transpose(Queue& queue, const Transpose& o) {
  internal::parallel(queue, o.outer * o.b, internal::grain(o.a * o.inner, internal::kCheap),
                     [&](std::int64_t first, std::int64_t end) { turn_part(o, first, end); });
}

}  // namespace troupe::kernels::cpu
