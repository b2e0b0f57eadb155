// Elementwise operations, column sums and casts of operations.hpp.
#include "troupe/kernels/half/half.hpp"
#include "troupe/kernels/internal/cpu.hpp"
#include "troupe/kernels/internal/operations.hpp"
#include "troupe/kernels/internal/simd.hpp"

#include <cmath>

namespace troupe::kernels::cpu {
namespace {
using internal::kCheap;
using internal::of_type;
using internal::pointer;

struct Span {
  std::int64_t first, end;
};

template <class T>
TROUPE_INLINE void add_span(const Elementwise& o, Span s) {
  const T *a = pointer<T>(o.a), *b = pointer<T>(o.b);
  T* out = pointer<T>(o.out);
  const T factor = static_cast<T>(o.factor);
  if (factor == T(1))
    for (std::int64_t i = s.first; i < s.end; ++i) out[i] = a[i] + b[i];
  else
    for (std::int64_t i = s.first; i < s.end; ++i) out[i] = a[i] + factor * b[i];
}
TROUPE_KERNEL void add_elements(const Elementwise& o, float, Span s) {
  add_span<float>(o, s);
}
TROUPE_KERNEL void add_elements(const Elementwise& o, double, Span s) {
  add_span<double>(o, s);
}

template <class T>
TROUPE_INLINE void scale_span(const Elementwise& o, Span s) {
  const T* a = pointer<T>(o.a);
  T* out = pointer<T>(o.out);
  const T factor = static_cast<T>(o.factor);
  for (std::int64_t i = s.first; i < s.end; ++i) out[i] = factor * a[i];
}
TROUPE_KERNEL void scale_elements(const Elementwise& o, float, Span s) {
  scale_span<float>(o, s);
}
TROUPE_KERNEL void scale_elements(const Elementwise& o, double, Span s) {
  scale_span<double>(o, s);
}

template <class T>
TROUPE_INLINE void sum_columns(const ColumnSum& o, Span s) {
  const T* in = pointer<T>(o.in);
  T* __restrict sum = pointer<T>(o.out);
  for (std::int64_t r = 0; r < o.rows; ++r)
    for (std::int64_t c = s.first; c < s.end; ++c) sum[c] += in[r * o.columns + c];
}
TROUPE_KERNEL void column_sums(const ColumnSum& o, float, Span s) {
  sum_columns<float>(o, s);
}
TROUPE_KERNEL void column_sums(const ColumnSum& o, double, Span s) {
  sum_columns<double>(o, s);
}

/// The bits of a 16-bit number, with its type.
struct Bf16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};

inline float widen(float x) {
  return x;
}
inline double widen(double x) {
  return x;
}
inline float widen(Bf16 x) {
  return from_bf16(x.bits);
}
inline float widen(F16 x) {
  return from_f16(x.bits);
}

/// Converts to float, rounded to odd: if a number is inexact, the result has an odd last bit. A
/// second rounding to fewer bits then gives the nearest number of the original one.
inline float to_odd(float x) {
  return x;
}
inline float to_odd(double x) {
  const float nearest = static_cast<float>(x);
  const double back = nearest;
  if (back == x || !std::isfinite(nearest) || (std::bit_cast<std::uint32_t>(nearest) & 1u) != 0)
    return nearest;
  return std::nextafter(nearest, back < x ? HUGE_VALF : -HUGE_VALF);
}

template <class To, class From>
To convert(From x) {
  if constexpr (std::is_same_v<To, Bf16>) return {to_bf16(to_odd(widen(x)))};
  if constexpr (std::is_same_v<To, F16>) return {to_f16(to_odd(widen(x)))};
  if constexpr (std::is_floating_point_v<To>) return static_cast<To>(widen(x));
}

template <class F>
void of_float_type(DType type, const F& f) {
  switch (type) {
    case DType::f32: return f(float());
    case DType::f64: return f(double());
    case DType::bf16: return f(Bf16());
    case DType::f16: return f(F16());
    default: TROUPE_ASSERT(false, "a cast is between floating-point types");
  }
}

}  // namespace

void add(Queue& queue, const Elementwise& o) {
  of_type(o.type, [&]<class T>(T type) {
    internal::parallel(queue, o.n, kCheap, [&](std::int64_t first, std::int64_t end) {
      add_elements(o, type, {first, end});
    });
  });
}

void scale(Queue& queue, const Elementwise& o) {
  of_type(o.type, [&]<class T>(T type) {
    internal::parallel(queue, o.n, kCheap, [&](std::int64_t first, std::int64_t end) {
      scale_elements(o, type, {first, end});
    });
  });
}

void fill(Queue& queue, const Elementwise& o) {
  of_type(o.type, [&]<class T>(T) {
    internal::parallel(queue, o.n, kCheap, [&](std::int64_t first, std::int64_t end) {
      std::fill(pointer<T>(o.out) + first, pointer<T>(o.out) + end, static_cast<T>(o.factor));
    });
  });
}

void column_sum(Queue& queue, const ColumnSum& o) {
  of_type(o.type, [&]<class T>(T type) {
    const std::int64_t grain = std::max<std::int64_t>(64, internal::grain(o.rows, kCheap));
    internal::parallel(queue, o.columns, grain, [&](std::int64_t first, std::int64_t end) {
      column_sums(o, type, {first, end});
    });
  });
}

void cast(Queue& queue, const Cast& o) {
  of_float_type(o.from, [&]<class From>(From) {
    of_float_type(o.to, [&]<class To>(To) {
      internal::parallel(queue, o.n, kCheap, [&](std::int64_t first, std::int64_t end) {
        const From* in = pointer<From>(o.in);
        To* out = pointer<To>(o.out);
        for (std::int64_t i = first; i < end; ++i) out[i] = convert<To>(in[i]);
      });
    });
  });
}

}  // namespace troupe::kernels::cpu
