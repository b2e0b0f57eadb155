#include "troupe/kernels/attention/internal/head.hpp"
#include "troupe/kernels/internal/simd.hpp"

#include <vector>

namespace troupe::kernels::internal {
namespace {

template <class T>
T product_of(const T* a, const T* b, std::int64_t n) {
  return sum<T>(n, [=](std::int64_t i) { return a[i] * b[i]; });
}

/// row[s] = q[t] . k[s] for s <= t.
template <class T>
void scores_of(const Head<T>& h, std::int64_t t, T* row) {
  for (std::int64_t s = 0; s <= t; ++s)
    row[s] = product_of(h.q + t * h.q_row, h.k + s * h.kv_row, h.size);
}

/// Returns the probabilities of row t: the kept ones, or computed again into `row`.
template <class T>
const T* probabilities_of(const Head<T>& h, std::int64_t t, T* row) {
  if (h.probabilities != nullptr) return h.probabilities + t * h.time;
  scores_of(h, t, row);
  for (std::int64_t s = 0; s <= t; ++s) row[s] = exp(h.scale * row[s] - h.lse[t]);
  return row;
}

template <class T>
void add_to(T* to, T factor, const T* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] += factor * x[i];
}

template <class T>
void clear_rows(T* x, std::int64_t rows, std::int64_t row, std::int64_t n) {
  for (std::int64_t r = 0; r < rows; ++r) std::fill_n(x + r * row, n, T(0));
}

}  // namespace

template <class T>
void attend_by_rows(const Head<T>& h) {
  std::vector<T> own(static_cast<std::size_t>(h.probabilities == nullptr ? h.time : 0));
  for (std::int64_t t = 0; t < h.time; ++t) {
    T* row = h.probabilities == nullptr ? own.data() : h.probabilities + t * h.time;
    scores_of(h, t, row);
    const T top = maximum(row, t + 1);
    for (std::int64_t s = 0; s <= t; ++s) row[s] = exp((row[s] - top) * h.scale);
    const T total = sum<T>(t + 1, [=](std::int64_t s) { return row[s]; });
    for (std::int64_t s = 0; s <= t; ++s) row[s] *= T(1) / total;
    if (h.probabilities != nullptr) std::fill(row + t + 1, row + h.time, T(0));
    if (h.lse != nullptr) h.lse[t] = h.scale * top + std::log(total);
    T* out = h.out + t * h.out_row;
    std::fill_n(out, h.size, T(0));
    for (std::int64_t s = 0; s <= t; ++s) add_to(out, row[s], h.v + s * h.kv_row, h.size);
  }
}

template <class T>
void attend_backward_by_rows(const Head<T>& h) {
  std::vector<T> own(static_cast<std::size_t>(2 * h.time));
  T* ds = own.data() + h.time;
  if (!h.add_kv) {
    clear_rows(h.dk, h.time, h.kv_row, h.size);
    clear_rows(h.dv, h.time, h.kv_row, h.size);
  }
  clear_rows(h.dq, h.time, h.q_row, h.size);
  for (std::int64_t t = 0; t < h.time; ++t) {
    const T *p = probabilities_of(h, t, own.data()), *dy = h.dout + t * h.out_row;
    for (std::int64_t s = 0; s <= t; ++s) {
      ds[s] = product_of(dy, h.v + s * h.kv_row, h.size);
      add_to(h.dv + s * h.kv_row, p[s], dy, h.size);
    }
    const T dot = product_of(p, ds, t + 1);
    for (std::int64_t s = 0; s <= t; ++s) {
      const T factor = h.scale * p[s] * (ds[s] - dot);
      add_to(h.dq + t * h.q_row, factor, h.k + s * h.kv_row, h.size);
      add_to(h.dk + s * h.kv_row, factor, h.q + t * h.q_row, h.size);
    }
  }
}

template void attend_by_rows(const Head<float>&);
template void attend_by_rows(const Head<double>&);
template void attend_backward_by_rows(const Head<float>&);
template void attend_backward_by_rows(const Head<double>&);

}  // namespace troupe::kernels::internal
