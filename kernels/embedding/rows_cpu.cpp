// The embedding of operations.hpp. In the backward pass threads divide the columns, so that each
// element adds its rows in ascending order.
#include "troupe/kernels/internal/cpu.hpp"
#include "troupe/kernels/internal/operations.hpp"
#include "troupe/kernels/internal/simd.hpp"

namespace troupe::kernels::cpu {
namespace {
using internal::kCheap;
using internal::of_type;
using internal::pointer;

/// Returns the token's row in this rank's table, or -1.
TROUPE_INLINE std::int64_t table_row(const Embedding& o, std::int64_t r) {
  const std::int64_t row = o.tokens[r] - o.first;
  return row < 0 || row >= o.table_rows ? -1 : row;
}

template <class T>
TROUPE_INLINE void look_up(const Embedding& o, std::int64_t first, std::int64_t end) {
  for (std::int64_t r = first; r < end; ++r) {
    const std::int64_t row = table_row(o, r);
    T* __restrict y = pointer<T>(o.out) + r * o.columns;
    const T* token = row < 0 ? nullptr : pointer<T>(o.table) + row * o.columns;
    const T* position =
        o.positions == nullptr ? nullptr : pointer<T>(o.positions) + r % o.time * o.columns;
    if (token != nullptr && position != nullptr)
      for (std::int64_t c = 0; c < o.columns; ++c) y[c] = token[c] + position[c];
    else if (token != nullptr || position != nullptr)
      for (std::int64_t c = 0; c < o.columns; ++c) y[c] = (token != nullptr ? token : position)[c];
    else
      for (std::int64_t c = 0; c < o.columns; ++c) y[c] = T(0);
  }
}
TROUPE_KERNEL void look_up_rows(const Embedding& o, float, std::int64_t first, std::int64_t end) {
  look_up<float>(o, first, end);
}
void look_up_rows(const Embedding& o, double, std::int64_t first, std::int64_t end) {
  look_up<double>(o, first, end);
}

template <class T>
TROUPE_INLINE void add_rows(const Embedding& o, std::int64_t first, std::int64_t end) {
  for (std::int64_t r = 0; r < o.rows; ++r) {
    const T* dy = pointer<T>(o.dout) + r * o.columns;
    const std::int64_t row = table_row(o, r);
    if (o.dtable != nullptr && row >= 0) {
      T* __restrict token = pointer<T>(o.dtable) + row * o.columns;
      for (std::int64_t c = first; c < end; ++c) token[c] += dy[c];
    }
    if (o.dpositions != nullptr) {
      T* __restrict position = pointer<T>(o.dpositions) + r % o.time * o.columns;
      for (std::int64_t c = first; c < end; ++c) position[c] += dy[c];
    }
  }
}
TROUPE_KERNEL void add_columns(const Embedding& o, float, std::int64_t first, std::int64_t end) {
  add_rows<float>(o, first, end);
}
void add_columns(const Embedding& o, double, std::int64_t first, std::int64_t end) {
  add_rows<double>(o, first, end);
}

}  // namespace

void embedding(Queue& queue, const Embedding& o) {
  of_type(o.type, [&]<class T>(T type) {
    internal::parallel(
        queue, o.rows, internal::grain(o.columns, kCheap),
        [&](std::int64_t first, std::int64_t end) { look_up_rows(o, type, first, end); });
  });
}

void embedding_backward(Queue& queue, const Embedding& o) {
  of_type(o.type, [&]<class T>(T type) {
    const std::int64_t grain = std::max<std::int64_t>(64, internal::grain(o.rows, kCheap));
    internal::parallel(queue, o.columns, grain, [&](std::int64_t first, std::int64_t end) {
      add_columns(o, type, first, end);
    });
  });
}

}  // namespace troupe::kernels::cpu
