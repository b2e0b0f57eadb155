/// Head: the operands of one head of an attention, and the two CPU implementations for a head. The
/// CPU's attention (heads_cpu.cpp) divides heads among threads.
#pragma once

#include "troupe/kernels/internal/operations.hpp"

#include <cmath>

namespace troupe::kernels::internal {

/// Pointers to one head's elements; `*_row` are the elements from row to row.
template <class T>
struct Head {
  std::int64_t time = 0, size = 0, q_row = 0, kv_row = 0, out_row = 0;
  T scale = 1;
  const T *q = nullptr, *k = nullptr, *v = nullptr;  ///< [time, size]
  T* out = nullptr;
  T* lse = nullptr;            ///< [time]; may be null
  T* probabilities = nullptr;  ///< [time, time]; null: only lse is kept
  // Backward:
  const T* dout = nullptr;  ///< rows as out
  T *dq = nullptr, *dk = nullptr, *dv = nullptr;
  bool add_kv = false;  ///< add to dk and dv, since a query head of the same group wrote them
};

/// Returns the operands of query head h of batch row b.
template <class T>
Head<T> head_of(const Attention& o, std::int64_t b, std::int64_t h) {
  const std::int64_t kv = h / (o.heads / o.kv_heads), first = b * o.time;
  const std::int64_t kv_at = first * o.kv_row + kv * o.head_size;
  Head<T> head;
  head.time = o.time;
  head.size = o.head_size;
  head.q_row = o.q_row;
  head.kv_row = o.kv_row;
  head.out_row = o.heads * o.head_size;
  head.scale = T(1) / std::sqrt(static_cast<T>(o.head_size));
  head.q = pointer<T>(o.q) + first * o.q_row + h * o.head_size;
  head.k = pointer<T>(o.k) + kv_at;
  head.v = pointer<T>(o.v) + kv_at;
  head.out = pointer<T>(o.out) + first * head.out_row + h * o.head_size;
  if (o.lse != nullptr) head.lse = pointer<T>(o.lse) + (b * o.heads + h) * o.time;
  if (o.probabilities != nullptr)
    head.probabilities = pointer<T>(o.probabilities) + (b * o.heads + h) * o.time * o.time;
  return head;
}

template <class T>
Head<T> head_of(const AttentionBackward& o, std::int64_t b, std::int64_t h) {
  const Attention& f = o.forward;
  const std::int64_t group = f.heads / f.kv_heads, first = b * f.time;
  const std::int64_t kv_at = first * f.kv_row + h / group * f.head_size;
  Head<T> head = head_of<T>(f, b, h);
  head.dout = pointer<T>(o.dout) + first * head.out_row + h * f.head_size;
  head.dq = pointer<T>(o.dq) + first * f.q_row + h * f.head_size;
  head.dk = pointer<T>(o.dk) + kv_at;
  head.dv = pointer<T>(o.dv) + kv_at;
  head.add_kv = h % group != 0;
  return head;
}

/// Computes a head row by row, without multiplying any element that the causal mask hides. It is
/// used for f64, and for inputs that are not all finite.
template <class T>
void attend_by_rows(const Head<T>& head);
template <class T>
void attend_backward_by_rows(const Head<T>& head);
extern template void attend_by_rows(const Head<float>&);
extern template void attend_by_rows(const Head<double>&);
extern template void attend_backward_by_rows(const Head<float>&);
extern template void attend_backward_by_rows(const Head<double>&);

/// Computes a head by matrix products; by rows if the inputs are not all finite.
void attend_by_blocks(const Head<float>& head);
void attend_backward_by_blocks(const Head<float>& head);
inline void attend_by_blocks(const Head<double>& head) {
  attend_by_rows(head);
}
inline void attend_backward_by_blocks(const Head<double>& head) {
  attend_backward_by_rows(head);
}

}  // namespace troupe::kernels::internal
