/// What a device can compute: one description per operation, and the table of functions that every
/// device fills.
///
///     device.kernels().gemm(queue, {.m = rows, .n = out, .k = in, .a = x, .lda = in, .b = w,
///                                   .ldb = in, .b_op = Op::transpose, .c = y, .ldc = out});
///
/// Rules for every operation:
///  KERN-1  a call enqueues the work and returns; on the CPU the result is written when it returns.
///          Calls on one queue take effect in their order;
///  KERN-2  gradients of weights are f32 (f64 for type f64) and are added to; gradients of inputs
///          are written, or added to where `add` says so;
///  KERN-3  sums run in one fixed order, whatever the number of threads: equal inputs give equal
///          bits on the same kind of device (products: with Blas::builtin, and on equal shapes with
///          others);
///  KERN-4  sizes are the caller's duty; 0 elements are fine, k = 0 gives beta * c and the
///          epilogue;
///  KERN-5  inputs and outputs do not overlap except where an operation says so; pointers need no
///          alignment beyond their type's;
///  KERN-6  the mathematics decides what is finite: a result is finite where the exact one fits its
///          type, and an element that is not used does not reach the result.
/// `type` is the type of activations and weights: of every operand that is a void pointer, except
///  - statistics: mean, rstd, lse, maximum, sum, target_logit, losses;
///  - gradients of weights: dweight, dbias, dtable, dpositions, the sums of column_sum, and c where
///    Gemm::c_type says so.
/// These are f32, or f64 for type f64. The CPU has f32, f64, bf16 and f16; a 16-bit call gives what
/// the f32 call gives on the same numbers, and rounds each 16-bit result once (to the nearest, ties
/// to even; what f16 cannot hold becomes an infinity). A device computes a 16-bit call in f32 too,
/// in its own order. CPU calls take f32 copies of 16-bit operands: they are for correctness.
#pragma once

#include "troupe/kernels/device.hpp"
#include "troupe/kernels/gemm/gemm.hpp"

#include <cstdint>

namespace troupe::kernels {

class Queue;

enum class Activation : std::uint8_t { none, relu, gelu, silu };

/// c[m, n] = act(op(a)[m, k] * op(b)[k, n] + beta * c + bias), `batch` times with the strides.
struct Gemm {
  DType type = DType::f32;    ///< of a, b, bias and aux
  DType c_type = DType::f32;  ///< of c: f32 or `type`; f64 when type is f64
  Op a_op = Op::none, b_op = Op::none;
  std::int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  std::int64_t lda = 0;
  const void* b = nullptr;
  std::int64_t ldb = 0;
  float beta = 0;
  void* c = nullptr;
  std::int64_t ldc = 0;
  const void* bias = nullptr;  ///< [n]; may be null
  Activation activation = Activation::none;
  /// [m, n] with ldc. Forward: the sum before the activation is written there when it is not null.
  /// Backward: read.
  void* aux = nullptr;
  /// c = (op(a) * op(b)) .* act'(aux): the product that carries a gradient back through act.
  bool activation_backward = false;
  std::int64_t batch = 1;
  std::int64_t a_stride = 0, b_stride = 0, c_stride = 0;
};

/// out = act(in), elementwise; out may be in.
struct Activate {
  DType type = DType::f32;
  Activation activation = Activation::gelu;
  std::int64_t n = 0;
  const void* in = nullptr;
  void* out = nullptr;
};
/// din = dout * act'(in), or added to din; din may be dout.
struct ActivateBackward {
  DType type = DType::f32;
  Activation activation = Activation::gelu;
  std::int64_t n = 0;
  const void* in = nullptr;
  const void* dout = nullptr;
  void* din = nullptr;
  bool add = false;
};
/// out = silu(gate) * up (Shazeer 2020, SwiGLU without the products).
struct GatedSilu {
  DType type = DType::f32;
  std::int64_t rows = 0, columns = 0;
  const void* gate = nullptr;  ///< [rows, columns], row_in elements between rows, as up
  const void* up = nullptr;
  std::int64_t row_in = 0;
  void* out = nullptr;  ///< [rows, columns]
  // Backward: reads dout, writes dgate and dup, which have row_in between rows.
  const void* dout = nullptr;
  void* dgate = nullptr;
  void* dup = nullptr;
};

/// Layer norm (Ba et al. 2016), or RMS norm (Zhang and Sennrich 2019) when `rms`: no mean, no bias.
struct Norm {
  DType type = DType::f32;
  bool rms = false;
  float epsilon = 1e-5f;
  std::int64_t rows = 0, columns = 0;
  const void* in = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;  ///< may be null
  void* out = nullptr;
  void* mean = nullptr;  ///< [rows]; not used by rms
  void* rstd = nullptr;  ///< [rows]
};
struct NormBackward {
  Norm forward;  ///< in, weight, mean, rstd
  const void* dout = nullptr;
  void* din = nullptr;      ///< backward_input
  bool add = true;          ///< to din: the residual's gradient is usually there already
  void* dweight = nullptr;  ///< backward_weight; added to
  void* dbias = nullptr;    ///< may be null; added to
};

/// Causal self-attention of several heads (Vaswani et al. 2017). Head h of kv_heads serves
/// heads / kv_heads query heads (Ainslie et al. 2023). With `probabilities` the T x T matrices are
/// kept for backward; without, an online softmax keeps `lse` only (Dao et al. 2022, Milakov and
/// Gimelshein 2018).
struct Attention {
  DType type = DType::f32;
  std::int64_t batch = 0, time = 0, heads = 0, kv_heads = 0, head_size = 0;
  const void* q =
      nullptr;  ///< element (b, t, h, i) at ((b * time + t) * q_row + h * head_size + i)
  const void* k = nullptr;
  const void* v = nullptr;
  std::int64_t q_row = 0, kv_row = 0;
  void* out = nullptr;            ///< [batch, time, heads, head_size]
  void* lse = nullptr;            ///< [batch, heads, time]; may be null with probabilities
  void* probabilities = nullptr;  ///< [batch, heads, time, time], zero above the diagonal; `type`
};
struct AttentionBackward {
  Attention forward;  ///< all that forward had, out too
  const void* dout = nullptr;
  void* dq = nullptr;  ///< written; rows as q
  void* dk = nullptr;  ///< written; rows as k and v
  void* dv = nullptr;
};

/// Rotary position embedding, in place (Su et al. 2021; pairs (i, i + head_size / 2)).
struct Rope {
  DType type = DType::f32;
  std::int64_t rows = 0, time = 0, heads = 0, head_size = 0, row = 0;  ///< row: between tokens
  std::int64_t first_position = 0;  ///< position of row r: first_position + r % time
  float theta = 10000.0f;
  bool inverse = false;  ///< backward
  void* x = nullptr;
};

/// out[r] = table[token[r]] (+ positions[r % time]). Tokens outside [first, first + table_rows)
/// give zero rows: they are another rank's.
struct Embedding {
  DType type = DType::f32;
  std::int64_t rows = 0, time = 0, columns = 0;
  const std::int32_t* tokens = nullptr;
  const void* table = nullptr;
  std::int64_t first = 0, table_rows = 0;
  const void* positions = nullptr;  ///< [time, columns]; may be null
  void* out = nullptr;
  // Backward: adds dout's rows in ascending order; no atomics.
  const void* dout = nullptr;
  void* dtable = nullptr;      ///< may be null
  void* dpositions = nullptr;  ///< may be null
};

/// Softmax cross-entropy over classes that may be divided among ranks. Three calls:
/// `cross_entropy_stats` writes of its classes the maximum, the sum of e^(x - maximum) and the
/// target's logit (-infinity where the target is elsewhere); ranks gather and combine these;
/// `cross_entropy_finish` writes the losses and turns logits into their gradient. One rank alone
/// calls `cross_entropy`, which is both.
struct CrossEntropy {
  DType type = DType::f32;
  std::int64_t rows = 0;
  std::int64_t first = 0, classes = 0;    ///< of this rank
  std::int64_t row = 0;                   ///< elements between rows of logits
  void* logits = nullptr;                 ///< becomes the gradient when `gradient`
  const std::int32_t* targets = nullptr;  ///< kIgnore: no loss, no gradient
  void* maximum = nullptr;                ///< [rows] each
  void* sum = nullptr;
  void* target_logit = nullptr;
  void* losses = nullptr;  ///< [rows]
  bool gradient = true;
  double scale = 1;  ///< of the gradient
};

/// What `cross_entropy_stats` wrote on every rank, made into what `cross_entropy_finish` reads: of
/// all classes the maximum, the sum (over ranks, ascending) and the target's logit.
struct CombineStats {
  DType type = DType::f32;  ///< of the statistics: f32 or f64
  std::int64_t rows = 0;
  int parts = 1;
  const void* in = nullptr;  ///< [parts, 3, rows]: each rank's maximum, sum, target_logit
  void* out = nullptr;       ///< [3, rows]
};

/// Each element is kept with probability 1 - p and divided by that; which ones is a function of
/// (seed, stream, row number, column), so that a layout changes nothing. out may be in. The same
/// call with dout is its backward.
struct Dropout {
  DType type = DType::f32;
  float p = 0;
  std::uint64_t seed = 0, stream = 0;
  std::int64_t rows = 0, columns = 0;
  /// Of each `time` rows, their number in the global order; of the host or the device. Null: 0, 1,
  /// …
  const std::int64_t* samples = nullptr;
  std::int64_t first_row = 0;  ///< of this rank's among those that `samples` numbers
  std::int64_t time = 1;
  std::int64_t first_column = 0, all_columns = 0;  ///< this rank's part of a row
  const void* in = nullptr;
  void* out = nullptr;
};

/// Images as matrices: out[(b, y, x), (c, i, j)] of in[b, c, height, width]; zero outside.
/// `col2im` adds the columns back: out[b, c, y, x] (written) from the matrix in, the gradient.
struct Im2col {
  DType type = DType::f32;
  std::int64_t batch = 0, channels = 0, height = 0, width = 0;
  std::int64_t kernel = 3, stride = 1, padding = 0;
  const void* in = nullptr;
  void* out = nullptr;
};
/// out[b, c, y, x]: the largest of a window, or a NaN in it; `index` is its place in its plane, the
/// first of equals. Backward: din (written) from dout.
struct MaxPool {
  DType type = DType::f32;
  std::int64_t planes = 0, height = 0, width = 0;  ///< planes: batch * channels
  std::int64_t window = 2;                         ///< and stride; what is left over is not read
  const void* in = nullptr;
  void* out = nullptr;
  std::int32_t* index = nullptr;
  const void* dout = nullptr;
  void* din = nullptr;
};
/// out[outer, b, a, inner] = in[outer, a, b, inner].
struct Transpose {
  DType type = DType::f32;
  std::int64_t outer = 1, a = 0, b = 0, inner = 1;
  const void* in = nullptr;
  void* out = nullptr;
};

/// Elementwise, of n elements.
struct Elementwise {
  DType type = DType::f32;
  std::int64_t n = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  void* out = nullptr;  ///< may be a or b
  double factor = 1;
};
/// out[c] += sum of in[r, c] over rows, ascending; out is f32 (f64 for f64).
struct ColumnSum {
  DType type = DType::f32;
  std::int64_t rows = 0, columns = 0;
  const void* in = nullptr;
  void* out = nullptr;
};
struct Cast {
  DType from = DType::f32, to = DType::f32;
  std::int64_t n = 0;
  const void* in = nullptr;
  void* out = nullptr;  ///< to the nearest, ties to even
};

/// AdamW (Loshchilov and Hutter 2019, algorithm 2), decay first, as torch does. Elementwise: any
/// split of the range gives the same bits.
struct AdamW {
  std::int64_t n = 0;
  float* weights = nullptr;
  float* m = nullptr;
  float* v = nullptr;
  const float* gradients = nullptr;
  float rate = 1e-3f, beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f, decay = 0.01f;
  float gradient_scale = 1.0f;  ///< multiplies every gradient first: the factor of a norm clip
  std::int64_t step = 1;        ///< counts from 1
};
/// SGD with momentum, as torch: m = momentum * m + g; w -= rate * (nesterov ? g + momentum * m :
/// m), g with the decay added. m is not used at momentum 0.
struct Sgd {
  std::int64_t n = 0;
  float* weights = nullptr;
  float* m = nullptr;
  const float* gradients = nullptr;
  float rate = 1e-2f, momentum = 0, decay = 0;
  bool nesterov = false;
  float gradient_scale = 1.0f;
  bool first = false;  ///< step: m = g
};
/// out[i] = the sum of squares of chunk i of x, in f64; the last chunk may be short.
struct ChunkSquares {
  std::int64_t n = 0, chunk = 1024;
  const float* x = nullptr;
  double* out = nullptr;  ///< memory of the host; written when the queue has been synchronised
};

/// Every function takes the queue that it is ordered in.
struct Kernels {
  void (*gemm)(Queue&, const Gemm&) = nullptr;
  void (*activate)(Queue&, const Activate&) = nullptr;
  void (*activate_backward)(Queue&, const ActivateBackward&) = nullptr;
  void (*gated_silu)(Queue&, const GatedSilu&) = nullptr;
  void (*gated_silu_backward)(Queue&, const GatedSilu&) = nullptr;
  void (*norm)(Queue&, const Norm&) = nullptr;
  void (*norm_backward_input)(Queue&, const NormBackward&) = nullptr;
  void (*norm_backward_weight)(Queue&, const NormBackward&) = nullptr;
  void (*attention)(Queue&, const Attention&) = nullptr;
  void (*attention_backward)(Queue&, const AttentionBackward&) = nullptr;
  void (*rope)(Queue&, const Rope&) = nullptr;
  void (*embedding)(Queue&, const Embedding&) = nullptr;
  void (*embedding_backward)(Queue&, const Embedding&) = nullptr;
  void (*cross_entropy)(Queue&, const CrossEntropy&) = nullptr;
  void (*cross_entropy_stats)(Queue&, const CrossEntropy&) = nullptr;
  void (*cross_entropy_finish)(Queue&, const CrossEntropy&) = nullptr;
  void (*combine_stats)(Queue&, const CombineStats&) = nullptr;
  void (*dropout)(Queue&, const Dropout&) = nullptr;
  void (*im2col)(Queue&, const Im2col&) = nullptr;
  void (*col2im)(Queue&, const Im2col&) = nullptr;
  void (*max_pool)(Queue&, const MaxPool&) = nullptr;
  void (*max_pool_backward)(Queue&, const MaxPool&) = nullptr;
  void (*transpose)(Queue&, const Transpose&) = nullptr;
  void (*add)(Queue&, const Elementwise&) = nullptr;    ///< out = a + factor * b
  void (*scale)(Queue&, const Elementwise&) = nullptr;  ///< out = factor * a
  void (*fill)(Queue&, const Elementwise&) = nullptr;   ///< out = factor
  void (*column_sum)(Queue&, const ColumnSum&) = nullptr;
  void (*cast)(Queue&, const Cast&) = nullptr;
  void (*adamw)(Queue&, const AdamW&) = nullptr;
  void (*sgd)(Queue&, const Sgd&) = nullptr;
  void (*chunk_squares)(Queue&, const ChunkSquares&) = nullptr;
};

}  // namespace troupe::kernels
