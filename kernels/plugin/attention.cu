// Causal attention with and without kept probabilities: one warp per query, or per key in the
// backward pass. Sums have a fixed order. Scores are computed again where they are needed. The
// kernels are not tiled: they are written to be correct, not fast.
#include "internal.cuh"
#include "numbers.cuh"

namespace troupe_cuda {
namespace {

using kernels::Attention;
using kernels::AttentionBackward;

constexpr int kOwn = 8;  ///< elements of a head that a lane sums at a time
constexpr int64_t kPass = int64_t{kOwn} * kWarp;

__device__ int64_t first_row() {
  return first() / kWarp;
}
__device__ int64_t row_stride() {
  return stride() / kWarp;
}
__device__ int lane() {
  return static_cast<int>(threadIdx.x) % kWarp;
}

/// The offsets of head h of batch row b. From row to row of a head there are q_row, kv_row or
/// out_row elements.
template <class T>
struct Head {
  const T *q, *k, *v;
  int64_t q_at, kv_at, out_at, out_row, rows;
  float scale;
};
template <class T>
__device__ Head<T> head_of(const Attention& o, int64_t b, int64_t h) {
  const int64_t kv = h / (o.heads / o.kv_heads), out_row = o.heads * o.head_size;
  Head<T> head{};
  head.q_at = b * o.time * o.q_row + h * o.head_size;
  head.kv_at = b * o.time * o.kv_row + kv * o.head_size;
  head.out_row = out_row;
  head.out_at = b * o.time * out_row + h * o.head_size;
  head.rows = (b * o.heads + h) * o.time;
  head.q = static_cast<const T*>(o.q) + head.q_at;
  head.k = static_cast<const T*>(o.k) + head.kv_at;
  head.v = static_cast<const T*>(o.v) + head.kv_at;
  head.scale = 1.0f / sqrtf(static_cast<float>(o.head_size));
  return head;
}

template <class T>
__device__ float dot(const T* a, const T* b, int64_t n) {
  float total = 0;
  for (int64_t i = 0; i < n; ++i) total += widen(a[i]) * widen(b[i]);
  return total;
}
template <class T>
__device__ float score(const Attention& o, const Head<T>& h, int64_t t, int64_t s) {
  return h.scale * dot(h.q + t * o.q_row, h.k + s * o.kv_row, o.head_size);
}

/// Adds elements [base, base + kPass) of a head: sum[u] += factor * x[base + lane + 32 u].
template <class T>
__device__ void add_to(float* sum, float factor, const T* x, int64_t base, int64_t size) {
  for (int u = 0; u < kOwn; ++u) {
    const int64_t i = base + lane() + u * kWarp;
    if (i < size) sum[u] += factor * widen(x[i]);
  }
}
template <class T>
__device__ void store_sums(T* x, const float* sum, int64_t base, int64_t size) {
  for (int u = 0; u < kOwn; ++u) {
    const int64_t i = base + lane() + u * kWarp;
    if (i < size) store<T>(x, i, sum[u]);
  }
}

/// The maximum of row t's scores and the sum of their powers, computed online (Milakov and
/// Gimelshein 2018).
struct Softmax {
  float top, total;
};
template <class T>
__device__ Softmax softmax_of(const Attention& o, const Head<T>& h, int64_t t) {
  float top = -INFINITY, total = 0;
  for (int64_t s = lane(); s <= t; s += kWarp) {
    const float x = score(o, h, t, s);
    if (x > top) {
      total *= expf(top - x);
      top = x;
    }
    total += expf(x - (top == -INFINITY ? 0.0f : top));
  }
  const float most = warp_max(top);
  return {most, warp_sum(total * expf(top - most))};
}

template <class T>
__global__ void forward_kernel(Attention o) {
  const int64_t rows = o.batch * o.heads * o.time;
  for (int64_t row = first_row(); row < rows; row += row_stride()) {
    const int64_t t = row % o.time, head = row / o.time;
    const Head<T> h = head_of<T>(o, head / o.heads, head % o.heads);
    const Softmax softmax = softmax_of(o, h, t);
    const auto probability = [&](int64_t s) {
      return s <= t ? expf(score(o, h, t, s) - softmax.top) / softmax.total : 0.0f;
    };
    if (o.lse != nullptr && lane() == 0) floats(o.lse)[row] = softmax.top + logf(softmax.total);
    if (o.probabilities != nullptr)
      for (int64_t s = lane(); s < o.time; s += kWarp)
        store<T>(o.probabilities, row * o.time + s, probability(s));
    for (int64_t base = 0; base < o.head_size; base += kPass) {
      float sum[kOwn] = {};
      for (int64_t s0 = 0; s0 <= t; s0 += kWarp) {
        const float own = probability(s0 + lane());
        for (int l = 0; l < kWarp && s0 + l <= t; ++l)
          add_to(sum, __shfl_sync(~0u, own, l), h.v + (s0 + l) * o.kv_row, base, o.head_size);
      }
      store_sums(static_cast<T*>(o.out) + h.out_at + t * h.out_row, sum, base, o.head_size);
    }
  }
}

/// delta[row] = dout . out, the term that the gradients of all scores of a row share.
template <class T>
__global__ void delta_kernel(AttentionBackward o, float* delta) {
  const Attention& f = o.forward;
  const int64_t rows = f.batch * f.heads * f.time;
  for (int64_t row = first_row(); row < rows; row += row_stride()) {
    const int64_t head = row / f.time;
    const Head<T> h = head_of<T>(f, head / f.heads, head % f.heads);
    const int64_t at = h.out_at + row % f.time * h.out_row;
    float total = 0;
    for (int64_t i = lane(); i < f.head_size; i += kWarp)
      total += load<T>(o.dout, at + i) * load<T>(f.out, at + i);
    total = warp_sum(total);
    if (lane() == 0) delta[row] = total;
  }
}

/// The probability of (t, s), and the gradient of q . k of (t, s), including the scale.
struct Slope {
  float p, ds;
};
template <class T>
__device__ Slope slope_of(const AttentionBackward& o, const Head<T>& h, const float* delta,
                          int64_t t, int64_t s) {
  const Attention& f = o.forward;
  if (t >= f.time || s > t) return {0.0f, 0.0f};
  const float p = f.probabilities != nullptr ? load<T>(f.probabilities, (h.rows + t) * f.time + s)
                                             : expf(score(f, h, t, s) - floats(f.lse)[h.rows + t]);
  const T* dout = static_cast<const T*>(o.dout) + h.out_at;
  const float dp = dot(dout + t * h.out_row, h.v + s * f.kv_row, f.head_size);
  return {p, h.scale * p * (dp - delta[h.rows + t])};
}

template <class T>
__global__ void query_kernel(AttentionBackward o, const float* delta) {
  const Attention& f = o.forward;
  const int64_t rows = f.batch * f.heads * f.time;
  for (int64_t row = first_row(); row < rows; row += row_stride()) {
    const int64_t t = row % f.time, head = row / f.time;
    const Head<T> h = head_of<T>(f, head / f.heads, head % f.heads);
    for (int64_t base = 0; base < f.head_size; base += kPass) {
      float sum[kOwn] = {};
      for (int64_t s0 = 0; s0 <= t; s0 += kWarp) {
        const Slope own = slope_of(o, h, delta, t, s0 + lane());
        for (int l = 0; l < kWarp && s0 + l <= t; ++l)
          add_to(sum, __shfl_sync(~0u, own.ds, l), h.k + (s0 + l) * f.kv_row, base, f.head_size);
      }
      store_sums(static_cast<T*>(o.dq) + h.q_at + t * f.q_row, sum, base, f.head_size);
    }
  }
}

/// Adds what one query head contributes to dk and dv of key s.
template <class T>
__device__ void add_queries(const AttentionBackward& o, const Head<T>& h, const float* delta,
                            int64_t s, int64_t base, float* dk, float* dv) {
  const Attention& f = o.forward;
  const T* dout = static_cast<const T*>(o.dout) + h.out_at;
  for (int64_t t0 = s; t0 < f.time; t0 += kWarp) {
    const Slope own = slope_of(o, h, delta, t0 + lane(), s);
    for (int l = 0; l < kWarp && t0 + l < f.time; ++l) {
      add_to(dk, __shfl_sync(~0u, own.ds, l), h.q + (t0 + l) * f.q_row, base, f.head_size);
      add_to(dv, __shfl_sync(~0u, own.p, l), dout + (t0 + l) * h.out_row, base, f.head_size);
    }
  }
}

/// Writes dk and dv. A row here is a key of a key-value head; its query heads are added in
/// ascending order.
template <class T>
__global__ void key_kernel(AttentionBackward o, const float* delta) {
  const Attention& f = o.forward;
  const int64_t rows = f.batch * f.kv_heads * f.time, group = f.heads / f.kv_heads;
  for (int64_t row = first_row(); row < rows; row += row_stride()) {
    const int64_t s = row % f.time, kv = row / f.time % f.kv_heads, b = row / f.time / f.kv_heads;
    const int64_t at = b * f.time * f.kv_row + kv * f.head_size + s * f.kv_row;
    for (int64_t base = 0; base < f.head_size; base += kPass) {
      float dk[kOwn] = {}, dv[kOwn] = {};
      for (int64_t h = kv * group; h < (kv + 1) * group; ++h)
        add_queries(o, head_of<T>(f, b, h), delta, s, base, dk, dv);
      store_sums(static_cast<T*>(o.dk) + at, dk, base, f.head_size);
      store_sums(static_cast<T*>(o.dv) + at, dv, base, f.head_size);
    }
  }
}

unsigned blocks_for_rows(int64_t rows) {
  return blocks_for(rows * kWarp);
}

}  // namespace

int attention(troupe_cuda_context* c, const Attention& o) {
  const int64_t rows = o.batch * o.heads * o.time;
  if (rows <= 0) return 0;
  return of_type(o.type, [&]<class T>(T) {
    forward_kernel<T><<<blocks_for_rows(rows), kThreads, 0, c->stream>>>(o);
    return launched();
  });
}

int attention_backward(troupe_cuda_context* c, const AttentionBackward& o) {
  const Attention& f = o.forward;
  const int64_t rows = f.batch * f.heads * f.time, keys = f.batch * f.kv_heads * f.time;
  if (rows <= 0) return 0;
  void* memory = nullptr;
  if (const int error = scratch(c, static_cast<size_t>(rows) * sizeof(float), &memory))
    return error;
  float* delta = floats(memory);
  return of_type(f.type, [&]<class T>(T) {
    delta_kernel<T><<<blocks_for_rows(rows), kThreads, 0, c->stream>>>(o, delta);
    query_kernel<T><<<blocks_for_rows(rows), kThreads, 0, c->stream>>>(o, delta);
    key_kernel<T><<<blocks_for_rows(keys), kThreads, 0, c->stream>>>(o, delta);
    return launched();
  });
}

}  // namespace troupe_cuda
