// Attention of one head by matrix products, in blocks of queries. With kept probabilities, all keys
// that a block may see form one tile. Without, keys come in tiles of a constant size. Source:
// Milakov and Gimelshein 2018 (the running maximum and sum), Dao et al. 2022 (tiles, and the
// backward pass from lse).
#include "troupe/kernels/attention/internal/head.hpp"
#include "troupe/kernels/gemm/gemm.hpp"
#include "troupe/kernels/internal/simd.hpp"

#include <limits>
#include <vector>

namespace troupe::kernels::internal {
namespace {

constexpr std::int64_t kQueries = 128;  // per block
constexpr std::int64_t kKeys = 256;     // per tile; two tiles of scores fit the second-level cache
constexpr float kNone = -std::numeric_limits<float>::infinity();

/// Scores or probabilities of queries [t0, t1) and keys [s0, s1).
struct ScoreTile {
  std::int64_t t0, t1, s0, s1;
  float* values;
  std::int64_t ld;
  std::int64_t rows() const { return t1 - t0; }
  std::int64_t columns() const { return s1 - s0; }
  /// Counts the keys of the tile that query t sees under the causal mask.
  std::int64_t seen(std::int64_t t) const {
    return std::clamp<std::int64_t>(t + 1 - s0, 0, s1 - s0);
  }
};

/// The online softmax of a block's rows: the maximum score so far, and the sum of powers under it.
struct RunningSoftmax {
  float top[kQueries], total[kQueries];
};

float* thread_scratch(std::int64_t size) {
  thread_local std::vector<float> buffer;
  if (buffer.size() < static_cast<std::size_t>(size)) buffer.resize(static_cast<std::size_t>(size));
  return buffer.data();
}

/// Whether all elements are finite. Infinities and NaN are the numbers whose exponent bits are all
/// set; integer tests without a branch vectorise.
TROUPE_KERNEL bool rows_are_finite(const float* x, std::int64_t rows, std::int64_t row,
                                   std::int64_t n) {
  std::uint32_t bad = 0;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < n; ++i)
      bad |= (std::bit_cast<std::uint32_t>(x[r * row + i]) & 0x7f800000u) == 0x7f800000u ? 1u : 0u;
  return bad == 0;
}

/// tile = x[t0..] y[s0..]^T.
void row_products(const ScoreTile& tile, const float* x, std::int64_t x_row, const float* y,
                  std::int64_t y_row, std::int64_t size) {
  kernels::gemm(Op::none, Op::transpose, tile.rows(), tile.columns(), size, x + tile.t0 * x_row,
                x_row, y + tile.s0 * y_row, y_row, 0.0f, tile.values, tile.ld);
}
/// out[t0..] = tile x[s0..] + beta * out.
void weigh(const ScoreTile& tile, const float* x, std::int64_t x_row, float beta, float* out,
           std::int64_t out_row, std::int64_t size) {
  kernels::gemm(Op::none, Op::none, tile.rows(), size, tile.columns(), tile.values, tile.ld,
                x + tile.s0 * x_row, x_row, beta, out + tile.t0 * out_row, out_row);
}
/// out[s0..] += tile^T x[t0..].
void weigh_transposed(const ScoreTile& tile, const float* x, std::int64_t x_row, float* out,
                      std::int64_t out_row, std::int64_t size) {
  kernels::gemm(Op::transpose, Op::none, tile.columns(), size, tile.rows(), tile.values, tile.ld,
                x + tile.t0 * x_row, x_row, 1.0f, out + tile.s0 * out_row, out_row);
}

/// Turns rows of scores into probabilities; elements behind the query are set to 0 up to `width`.
TROUPE_KERNEL void softmax_rows(const ScoreTile& tile, float scale, std::int64_t width,
                                float* lse) {
  for (std::int64_t t = tile.t0; t < tile.t1; ++t) {
    float* row = tile.values + (t - tile.t0) * tile.ld;
    const float top = maximum(row, t + 1);
    for (std::int64_t s = 0; s <= t; ++s) row[s] = exp((row[s] - top) * scale);
    const float total = sum<float>(t + 1, [=](std::int64_t s) { return row[s]; });
    const float inverse = 1.0f / total;
    for (std::int64_t s = 0; s <= t; ++s) row[s] *= inverse;
    for (std::int64_t s = t + 1; s < width; ++s) row[s] = 0.0f;
    if (lse != nullptr) lse[t] = scale * top + std::log(total);
  }
}

/// Turns a tile of scores into powers e^(x - maximum). Where the tile raises a row's maximum, the
/// sum and the output so far are rescaled to the new one.
TROUPE_KERNEL void softmax_tile(const ScoreTile& tile, float scale, RunningSoftmax* running,
                                float* out, std::int64_t out_row, std::int64_t size) {
  for (std::int64_t t = tile.t0; t < tile.t1; ++t) {
    const std::int64_t seen = tile.seen(t), r = t - tile.t0;
    float* __restrict row = tile.values + r * tile.ld;
    for (std::int64_t s = seen; s < tile.columns(); ++s) row[s] = 0.0f;
    if (seen == 0) continue;
    const float before = running->top[r], here = maximum(row, seen);
    const float top = before >= here ? before : here, base = top == kNone ? 0.0f : top;
    for (std::int64_t s = 0; s < seen; ++s) row[s] = exp((row[s] - base) * scale);
    const float total = sum<float>(seen, [=](std::int64_t s) { return row[s]; });
    const float kept = tile.s0 == 0 ? 0.0f : exp((before - base) * scale);
    running->top[r] = top;
    running->total[r] = running->total[r] * kept + total;
    if (tile.s0 == 0) continue;
    float* __restrict y = out + t * out_row;
    for (std::int64_t i = 0; i < size; ++i) y[i] *= kept;
  }
}

TROUPE_KERNEL void finish_softmax(const RunningSoftmax* running, std::int64_t t0, std::int64_t t1,
                                  const Head<float>& h) {
  for (std::int64_t t = t0; t < t1; ++t) {
    const float total = running->total[t - t0], inverse = 1.0f / total;
    float* y = h.out + t * h.out_row;
    for (std::int64_t i = 0; i < h.size; ++i) y[i] *= inverse;
    h.lse[t] = h.scale * running->top[t - t0] + std::log(total);
  }
}

/// Turns scores into probabilities, by the lse of the forward pass.
TROUPE_KERNEL void restore_probabilities(const ScoreTile& tile, float scale, const float* lse) {
  for (std::int64_t t = tile.t0; t < tile.t1; ++t) {
    const std::int64_t seen = tile.seen(t);
    float* row = tile.values + (t - tile.t0) * tile.ld;
    const float norm = lse[t];
    for (std::int64_t s = 0; s < seen; ++s) row[s] = exp(row[s] * scale - norm);
    for (std::int64_t s = seen; s < tile.columns(); ++s) row[s] = 0.0f;
  }
}

/// Turns dp into the gradient of the scores: scale * p * (dp - dot), with dot the dot product of
/// the whole rows p and dp. It equals that of out and dout (`dots`). If `dots` is null, the tile
/// holds all keys and the product is computed from it.
TROUPE_KERNEL void softmax_gradient(const ScoreTile& dp, const ScoreTile& p, float scale,
                                    const float* dots) {
  for (std::int64_t t = dp.t0; t < dp.t1; ++t) {
    const std::int64_t seen = dp.seen(t), r = t - dp.t0;
    float* __restrict drow = dp.values + r * dp.ld;
    const float* row = p.values + r * p.ld;
    const float dot = dots != nullptr
                          ? dots[r]
                          : sum<float>(seen, [=](std::int64_t s) { return row[s] * drow[s]; });
    for (std::int64_t s = 0; s < seen; ++s) drow[s] = scale * row[s] * (drow[s] - dot);
    for (std::int64_t s = seen; s < dp.columns(); ++s) drow[s] = 0.0f;
  }
}

TROUPE_KERNEL void out_products(const Head<float>& h, std::int64_t t0, std::int64_t t1,
                                float* dots) {
  for (std::int64_t t = t0; t < t1; ++t) {
    const float *y = h.out + t * h.out_row, *dy = h.dout + t * h.out_row;
    dots[t - t0] = sum<float>(h.size, [=](std::int64_t i) { return y[i] * dy[i]; });
  }
}

void attend_keeping(const Head<float>& h) {
  for (std::int64_t t0 = 0; t0 < h.time; t0 += kQueries) {
    const std::int64_t t1 = std::min(t0 + kQueries, h.time);
    const ScoreTile p{t0, t1, 0, t1, h.probabilities + t0 * h.time, h.time};
    row_products(p, h.q, h.q_row, h.k, h.kv_row, h.size);
    softmax_rows(p, h.scale, h.time, h.lse);
    weigh(p, h.v, h.kv_row, 0.0f, h.out, h.out_row, h.size);
  }
}

void attend_online(const Head<float>& h) {
  float* scores = thread_scratch(kQueries * kKeys);
  for (std::int64_t t0 = 0; t0 < h.time; t0 += kQueries) {
    const std::int64_t t1 = std::min(t0 + kQueries, h.time);
    RunningSoftmax running;
    std::fill_n(running.top, kQueries, kNone);
    std::fill_n(running.total, kQueries, 0.0f);
    for (std::int64_t s0 = 0; s0 < t1; s0 += kKeys) {
      const ScoreTile p{t0, t1, s0, std::min(s0 + kKeys, t1), scores, kKeys};
      row_products(p, h.q, h.q_row, h.k, h.kv_row, h.size);
      softmax_tile(p, h.scale, &running, h.out, h.out_row, h.size);
      weigh(p, h.v, h.kv_row, s0 == 0 ? 0.0f : 1.0f, h.out, h.out_row, h.size);
    }
    finish_softmax(&running, t0, t1, h);
  }
}

/// Adds one tile's part to dq, dk and dv. The first tile of a block overwrites dq.
void add_gradients(const Head<float>& h, const ScoreTile& p, const ScoreTile& ds,
                   const float* dots) {
  weigh_transposed(p, h.dout, h.out_row, h.dv, h.kv_row, h.size);
  row_products(ds, h.dout, h.out_row, h.v, h.kv_row, h.size);
  softmax_gradient(ds, p, h.scale, dots);
  weigh(ds, h.k, h.kv_row, ds.s0 == 0 ? 0.0f : 1.0f, h.dq, h.q_row, h.size);
  weigh_transposed(ds, h.q, h.q_row, h.dk, h.kv_row, h.size);
}

void backward_keeping(const Head<float>& h) {
  float* gradients = thread_scratch(kQueries * h.time);
  for (std::int64_t t0 = 0; t0 < h.time; t0 += kQueries) {
    const std::int64_t t1 = std::min(t0 + kQueries, h.time);
    const ScoreTile p{t0, t1, 0, t1, h.probabilities + t0 * h.time, h.time};
    add_gradients(h, p, {t0, t1, 0, t1, gradients, h.time}, nullptr);
  }
}

void backward_online(const Head<float>& h) {
  float* scores = thread_scratch(2 * kQueries * kKeys);
  float dots[kQueries];
  for (std::int64_t t0 = 0; t0 < h.time; t0 += kQueries) {
    const std::int64_t t1 = std::min(t0 + kQueries, h.time);
    out_products(h, t0, t1, dots);
    for (std::int64_t s0 = 0; s0 < t1; s0 += kKeys) {
      const ScoreTile p{t0, t1, s0, std::min(s0 + kKeys, t1), scores, kKeys};
      row_products(p, h.q, h.q_row, h.k, h.kv_row, h.size);
      restore_probabilities(p, h.scale, h.lse);
      ScoreTile ds = p;
      ds.values += kQueries * kKeys;
      add_gradients(h, p, ds, dots);
    }
  }
}

void clear_gradient(const Head<float>& h, float* x) {
  for (std::int64_t t = 0; t < h.time; ++t) std::fill_n(x + t * h.kv_row, h.size, 0.0f);
}

}  // namespace

// Matrix products multiply masked elements by 0, which gives NaN for infinities and NaN (KERN-6).
void attend_by_blocks(const Head<float>& h) {
  if (!rows_are_finite(h.v, h.time, h.kv_row, h.size)) return attend_by_rows(h);
  if (h.probabilities != nullptr)
    attend_keeping(h);
  else
    attend_online(h);
}

void attend_backward_by_blocks(const Head<float>& h) {
  if (!rows_are_finite(h.dout, h.time, h.out_row, h.size) ||
      !rows_are_finite(h.q, h.time, h.q_row, h.size) ||
      !rows_are_finite(h.k, h.time, h.kv_row, h.size))
    return attend_backward_by_rows(h);
  if (!h.add_kv) {
    clear_gradient(h, h.dk);
    clear_gradient(h, h.dv);
  }
  if (h.probabilities != nullptr)
    backward_keeping(h);
  else
    backward_online(h);
}

}  // namespace troupe::kernels::internal
