// Products of operations.hpp: gemm(), then one pass over the rows for bias and activation. Threads
// divide rows, or columns when there are few rows. They never divide k, so that each element's sum
// stays with one thread.
#include "troupe/kernels/gemm/gemm.hpp"
#include "troupe/kernels/internal/activations.hpp"
#include "troupe/kernels/internal/cpu.hpp"
#include "troupe/kernels/internal/operations.hpp"

namespace troupe::kernels::cpu {
namespace {
using internal::of_type;
using internal::pointer;

/// A part of c: rows [row, row + rows), columns [column, column + columns).
struct Tile {
  std::int64_t row, rows, column, columns;
};

template <class T>
const T* a_of(const Gemm& o, std::int64_t batch, std::int64_t row) {
  return pointer<T>(o.a) + batch * o.a_stride + row * (o.a_op == Op::none ? o.lda : 1);
}
template <class T>
const T* b_of(const Gemm& o, std::int64_t batch, std::int64_t column) {
  return pointer<T>(o.b) + batch * o.b_stride + column * (o.b_op == Op::none ? 1 : o.ldb);
}

void multiply(const Gemm& o, std::int64_t batch, const Tile& t, float) {
  float* c = pointer<float>(o.c) + batch * o.c_stride + t.row * o.ldc + t.column;
  kernels::gemm(o.a_op, o.b_op, t.rows, t.columns, o.k, a_of<float>(o, batch, t.row), o.lda,
                b_of<float>(o, batch, t.column), o.ldb, o.beta, c, o.ldc);
}

/// The product in f64, for gradient checks: simple, and not fast.
void multiply(const Gemm& o, std::int64_t batch, const Tile& t, double) {
  const std::int64_t a_row = o.a_op == Op::none ? o.lda : 1, a_k = o.a_op == Op::none ? 1 : o.lda;
  const std::int64_t b_k = o.b_op == Op::none ? o.ldb : 1,
                     b_column = o.b_op == Op::none ? 1 : o.ldb;
  const double *a = a_of<double>(o, batch, t.row), *b = b_of<double>(o, batch, t.column);
  for (std::int64_t i = 0; i < t.rows; ++i) {
    double* c = pointer<double>(o.c) + batch * o.c_stride + (t.row + i) * o.ldc + t.column;
    for (std::int64_t j = 0; j < t.columns; ++j) c[j] = o.beta == 0 ? 0 : o.beta * c[j];
    for (std::int64_t p = 0; p < o.k; ++p) {
      const double factor = a[i * a_row + p * a_k];
      for (std::int64_t j = 0; j < t.columns; ++j) c[j] += factor * b[p * b_k + j * b_column];
    }
  }
}

template <Activation activation, bool keep, class T>
TROUPE_INLINE void activate_row(T* __restrict c, T* __restrict aux, const T* bias, std::int64_t n) {
  for (std::int64_t j = 0; j < n; ++j) {
    const T x = bias != nullptr ? c[j] + bias[j] : c[j];
    if constexpr (keep) aux[j] = x;
    c[j] = internal::value<activation>(x);
  }
}

template <Activation activation, class T>
TROUPE_INLINE void finish_row(T* __restrict c, T* __restrict aux, const T* bias, std::int64_t n,
                              bool backward) {
  if (backward)
    for (std::int64_t j = 0; j < n; ++j) c[j] = internal::gradient<activation>(aux[j], c[j]);
  else if (aux != nullptr)
    activate_row<activation, true>(c, aux, bias, n);
  else
    activate_row<activation, false>(c, aux, bias, n);
}

template <Activation activation, class T>
TROUPE_INLINE void finish_rows(const Gemm& o, std::int64_t batch, const Tile& t) {
  for (std::int64_t i = 0; i < t.rows; ++i) {
    const std::int64_t at = batch * o.c_stride + (t.row + i) * o.ldc + t.column;
    finish_row<activation, T>(pointer<T>(o.c) + at,
                              o.aux == nullptr ? nullptr : pointer<T>(o.aux) + at,
                              o.bias == nullptr ? nullptr : pointer<T>(o.bias) + t.column,
                              t.columns, o.activation_backward);
  }
}
template <class T>
TROUPE_INLINE void finish_tile(const Gemm& o, std::int64_t batch, const Tile& t) {
  switch (o.activation) {
    case Activation::none: return finish_rows<Activation::none, T>(o, batch, t);
    case Activation::relu: return finish_rows<Activation::relu, T>(o, batch, t);
    case Activation::gelu: return finish_rows<Activation::gelu, T>(o, batch, t);
    case Activation::silu: return finish_rows<Activation::silu, T>(o, batch, t);
  }
}
TROUPE_KERNEL void finish_product(const Gemm& o, std::int64_t batch, const Tile* t, float) {
  finish_tile<float>(o, batch, *t);
}
void finish_product(const Gemm& o, std::int64_t batch, const Tile* t, double) {
  finish_tile<double>(o, batch, *t);
}

bool has_epilogue(const Gemm& o) {
  return o.bias != nullptr || o.aux != nullptr || o.activation != Activation::none;
}

/// How a product is divided among threads: in units of consecutive rows, or of columns when there
/// are few rows.
struct Division {
  bool by_rows;
  std::int64_t cut, unit, units, grain;

  Division(const Gemm& o, int threads) {
    constexpr std::int64_t kWorth = 1 << 20;  // multiplications that are worth another thread
    by_rows = o.m >= o.n || o.m >= std::int64_t{64} * threads;
    cut = by_rows ? o.m : o.n;
    unit = std::min<std::int64_t>(16, cut);
    units = (cut + unit - 1) / unit;
    const std::int64_t work = unit * (by_rows ? o.n : o.m) * (o.k + 8);
    grain = std::max(kWorth / std::max<std::int64_t>(1, work), o.batch * units / threads);
  }
  Tile tile(const Gemm& o, std::int64_t first, std::int64_t end) const {
    const std::int64_t from = first * unit, size = std::min(end * unit, cut) - from;
    return by_rows ? Tile{from, size, 0, o.n} : Tile{0, o.m, from, size};
  }
};

template <class T>
void product(Queue& queue, const Gemm& o, T type) {
  const Division d(o, queue.threads());
  internal::parallel(queue, o.batch * d.units, d.grain, [&](std::int64_t first, std::int64_t end) {
    for (std::int64_t at = first; at < end;) {
      const std::int64_t batch = at / d.units, from = at % d.units;
      const std::int64_t size = std::min(end - at, d.units - from);
      const Tile tile = d.tile(o, from, from + size);
      multiply(o, batch, tile, type);
      if (has_epilogue(o)) finish_product(o, batch, &tile, type);
      at += size;
    }
  });
}

}  // namespace

void gemm(Queue& queue, const Gemm& o) {
  if (o.m <= 0 || o.n <= 0) return;
  of_type(o.type, [&]<class T>(T type) { product(queue, o, type); });
}

}  // namespace troupe::kernels::cpu
