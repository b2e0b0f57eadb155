// Layer and RMS norm of operations.hpp. A row is computed in its own type. If that loses the result
// (squares overflow, or the mean is far larger than the deviation), it is computed in the next
// wider type.
#include "troupe/kernels/internal/cpu.hpp"
#include "troupe/kernels/internal/operations.hpp"
#include "troupe/kernels/internal/simd.hpp"

#include <limits>
#include <type_traits>

namespace troupe::kernels::cpu {
namespace {
using internal::grain;
using internal::kCheap;
using internal::of_type;
using internal::pointer;
using internal::sum;

template <class T>
using Wider = std::conditional_t<std::is_same_v<T, float>, double, long double>;

template <class W>
struct Moments {
  W mean, rstd;
};

/// Whether T cannot hold these moments, or has lost too many digits of them.
template <class T>
TROUPE_INLINE bool is_extreme(const Moments<T>& m) {
  using Limits = std::numeric_limits<T>;
  return !(m.rstd >= Limits::min() && m.rstd <= Limits::max() &&
           std::abs(m.mean) * m.rstd <= T(64));
}

/// Computes the moments of a row in type W.
template <class W, class T>
TROUPE_INLINE Moments<W> moments_of(const Norm& o, const T* x) {
  const W count = static_cast<W>(o.columns);
  const W mean =
      o.rms ? W(0)
            : sum<W>(o.columns, [=](std::int64_t c) { return static_cast<W>(x[c]); }) / count;
  const W variance = sum<W>(o.columns,
                            [=](std::int64_t c) {
                              const W d = static_cast<W>(x[c]) - mean;
                              return d * d;
                            }) /
                     count;
  return {mean, W(1) / std::sqrt(variance + static_cast<W>(o.epsilon))};
}

template <class W, class T>
TROUPE_INLINE void normalise(const Norm& o, const T* x, T* __restrict y, Moments<W> m) {
  const T *weight = pointer<T>(o.weight), *bias = pointer<T>(o.bias);
  if (bias != nullptr)
    for (std::int64_t c = 0; c < o.columns; ++c)
      y[c] = static_cast<T>((static_cast<W>(x[c]) - m.mean) * m.rstd * static_cast<W>(weight[c]) +
                            static_cast<W>(bias[c]));
  else
    for (std::int64_t c = 0; c < o.columns; ++c)
      y[c] = static_cast<T>((static_cast<W>(x[c]) - m.mean) * m.rstd * static_cast<W>(weight[c]));
}

template <class T>
TROUPE_INLINE void forward_rows(const Norm& o, std::int64_t first, std::int64_t end) {
  for (std::int64_t r = first; r < end; ++r) {
    const T* x = pointer<T>(o.in) + r * o.columns;
    T* y = pointer<T>(o.out) + r * o.columns;
    Moments<T> m = moments_of<T>(o, x);
    if (is_extreme(m)) {
      const auto wide = moments_of<Wider<T>>(o, x);
      normalise(o, x, y, wide);
      m = {static_cast<T>(wide.mean), static_cast<T>(wide.rstd)};
    } else {
      normalise(o, x, y, m);
    }
    if (!o.rms) pointer<T>(o.mean)[r] = m.mean;
    pointer<T>(o.rstd)[r] = m.rstd;
  }
}
TROUPE_KERNEL void forward(const Norm& o, float, std::int64_t first, std::int64_t end) {
  forward_rows<float>(o, first, end);
}
void forward(const Norm& o, double, std::int64_t first, std::int64_t end) {
  forward_rows<double>(o, first, end);
}

template <class T>
TROUPE_INLINE Moments<T> saved_moments(const Norm& o, std::int64_t r) {
  return {o.rms ? T(0) : pointer<T>(o.mean)[r], pointer<T>(o.rstd)[r]};
}

template <class W>
struct Pair {
  W first, second;
};
/// Returns the sums of f(i) and of f(i) * g(i), in the order of internal::sum.
template <class W, class F, class G>
TROUPE_INLINE Pair<W> sum_pair(std::int64_t n, F f, G g) {
  constexpr std::int64_t kLanes = internal::kLanes;
  W first[kLanes] = {}, second[kLanes] = {};
  const auto add = [&](std::int64_t i, std::int64_t j) {
    const W value = f(i + j);
    first[j] += value;
    second[j] += value * g(i + j);
  };
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::int64_t j = 0; j < kLanes; ++j) add(i, j);
  for (std::int64_t j = 0; i + j < n; ++j) add(i, j);
  return {internal::sum_lanes(first), internal::sum_lanes(second)};
}

template <class W, class T>
TROUPE_INLINE void input_row(const NormBackward& o, const T* x, const T* dy, T* __restrict dx,
                             Moments<W> m) {
  const Norm& f = o.forward;
  const T* weight = pointer<T>(f.weight);
  const W count = static_cast<W>(f.columns);
  const auto scaled = [=](std::int64_t c) {
    return static_cast<W>(weight[c]) * static_cast<W>(dy[c]);
  };
  const auto normal = [=](std::int64_t c) { return (static_cast<W>(x[c]) - m.mean) * m.rstd; };
  const Pair<W> sums = sum_pair<W>(f.columns, scaled, normal);
  const W average = f.rms ? W(0) : sums.first / count, slope = sums.second / count;
  if (o.add)
    for (std::int64_t c = 0; c < f.columns; ++c)
      dx[c] += static_cast<T>((scaled(c) - average - normal(c) * slope) * m.rstd);
  else
    for (std::int64_t c = 0; c < f.columns; ++c)
      dx[c] = static_cast<T>((scaled(c) - average - normal(c) * slope) * m.rstd);
}

template <class T>
TROUPE_INLINE void input_rows(const NormBackward& o, std::int64_t first, std::int64_t end) {
  const std::int64_t columns = o.forward.columns;
  for (std::int64_t r = first; r < end; ++r) {
    const T *x = pointer<T>(o.forward.in) + r * columns, *dy = pointer<T>(o.dout) + r * columns;
    T* dx = pointer<T>(o.din) + r * columns;
    const Moments<T> m = saved_moments<T>(o.forward, r);
    if (is_extreme(m))
      input_row(o, x, dy, dx, moments_of<Wider<T>>(o.forward, x));
    else
      input_row(o, x, dy, dx, m);
  }
}
TROUPE_KERNEL void backward_input(const NormBackward& o, float, std::int64_t first,
                                  std::int64_t end) {
  input_rows<float>(o, first, end);
}
void backward_input(const NormBackward& o, double, std::int64_t first, std::int64_t end) {
  input_rows<double>(o, first, end);
}

template <class W, class T>
TROUPE_INLINE void weight_row(const T* x, const T* dy, T* __restrict dweight, T* __restrict dbias,
                              std::int64_t n, Moments<W> m) {
  const auto product = [=](std::int64_t c) {
    return static_cast<T>(static_cast<W>(dy[c]) * ((static_cast<W>(x[c]) - m.mean) * m.rstd));
  };
  if (dbias == nullptr) {
    for (std::int64_t c = 0; c < n; ++c) dweight[c] += product(c);
    return;
  }
  for (std::int64_t c = 0; c < n; ++c) {
    dweight[c] += product(c);
    dbias[c] += dy[c];
  }
}

/// Rows that are added while an element of the gradient stays in a register.
constexpr std::int64_t kTogether = 4;

/// Adds kTogether consecutive rows to the gradients; x and dy point to the first. The bits are the
/// same as row by row.
template <class T>
TROUPE_INLINE void weight_rows(const T* x, const T* dy, std::int64_t columns, T* __restrict dweight,
                               T* __restrict dbias, std::int64_t n, const Moments<T>* moments) {
  T mean[kTogether], rstd[kTogether];
  for (std::int64_t k = 0; k < kTogether; ++k) mean[k] = moments[k].mean;
  for (std::int64_t k = 0; k < kTogether; ++k) rstd[k] = moments[k].rstd;
  for (std::int64_t c = 0; c < n; ++c) {
    T sum = dweight[c];
    for (std::int64_t k = 0; k < kTogether; ++k)
      sum += dy[k * columns + c] * ((x[k * columns + c] - mean[k]) * rstd[k]);
    dweight[c] = sum;
  }
  if (dbias == nullptr) return;
  for (std::int64_t c = 0; c < n; ++c) {
    T sum = dbias[c];
    for (std::int64_t k = 0; k < kTogether; ++k) sum += dy[k * columns + c];
    dbias[c] = sum;
  }
}

/// Reads the moments of kTogether rows from r on. Returns false when there are fewer rows, or when
/// one of them is extreme.
template <class T>
TROUPE_INLINE bool plain_moments(const Norm& o, std::int64_t r, Moments<T>* moments) {
  if (o.rows - r < kTogether) return false;
  bool plain = true;
  for (std::int64_t k = 0; k < kTogether; ++k) {
    moments[k] = saved_moments<T>(o, r + k);
    plain = plain && !is_extreme(moments[k]);
  }
  return plain;
}

/// Adds columns [first, end) of all rows to the gradients.
template <class T>
TROUPE_INLINE void weight_columns(const NormBackward& o, std::int64_t first, std::int64_t end) {
  const std::int64_t columns = o.forward.columns, n = end - first;
  T* dweight = pointer<T>(o.dweight) + first;
  T* dbias = o.dbias == nullptr ? nullptr : pointer<T>(o.dbias) + first;
  Moments<T> moments[kTogether];
  for (std::int64_t r = 0; r < o.forward.rows;) {
    const T *row = pointer<T>(o.forward.in) + r * columns, *x = row + first,
            *dy = pointer<T>(o.dout) + r * columns + first;
    if (plain_moments(o.forward, r, moments)) {
      weight_rows(x, dy, columns, dweight, dbias, n, moments);
      r += kTogether;
      continue;
    }
    const Moments<T> m = saved_moments<T>(o.forward, r);
    if (is_extreme(m))
      weight_row(x, dy, dweight, dbias, n, moments_of<Wider<T>>(o.forward, row));
    else
      weight_row(x, dy, dweight, dbias, n, m);
    ++r;
  }
}
TROUPE_KERNEL void backward_weight(const NormBackward& o, float, std::int64_t first,
                                   std::int64_t end) {
  weight_columns<float>(o, first, end);
}
void backward_weight(const NormBackward& o, double, std::int64_t first, std::int64_t end) {
  weight_columns<double>(o, first, end);
}

}  // namespace

void norm(Queue& queue, const Norm& o) {
  if (o.columns == 0) return;
  of_type(o.type, [&]<class T>(T type) {
    internal::parallel(queue, o.rows, grain(o.columns, kCheap),
                       [&](std::int64_t first, std::int64_t end) { forward(o, type, first, end); });
  });
}

void norm_backward_input(Queue& queue, const NormBackward& o) {
  if (o.forward.columns == 0) return;
  of_type(o.forward.type, [&]<class T>(T type) {
    internal::parallel(
        queue, o.forward.rows, grain(o.forward.columns, kCheap),
        [&](std::int64_t first, std::int64_t end) { backward_input(o, type, first, end); });
  });
}

void norm_backward_weight(Queue& queue, const NormBackward& o) {
  of_type(o.forward.type, [&]<class T>(T type) {
    internal::parallel(
        queue, o.forward.columns, std::max<std::int64_t>(64, grain(o.forward.rows, kCheap)),
        [&](std::int64_t first, std::int64_t end) { backward_weight(o, type, first, end); });
  });
}

}  // namespace troupe::kernels::cpu
