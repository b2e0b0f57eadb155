/// The operations that a device can compute: one struct describes the operands of each, and the
/// table Kernels has a function for each. Every kind of device fills the table.
///
///     device.kernels().gemm(queue, {.m = rows, .n = out, .k = in, .a = x, .lda = in, .b = w,
///                                   .ldb = in, .b_op = Op::transpose, .c = y, .ldc = out});
///
/// Rules for every operation:
///  KERN-1  A call enqueues the work and returns. On the CPU the result is written when it returns.
///          Calls on one queue take effect in their order.
///  KERN-2  Gradients of weights are f32 (f64 for type f64) and are added to. Gradients of inputs
///          are written, or added to where `add` is set.
///  KERN-3  Sums run in one fixed order, whatever the number of threads. Equal inputs give equal
///          bits on the same kind of device. For products this holds with Blas::builtin; with a
///          library it holds for equal shapes.
///  KERN-4  The caller must pass valid sizes. 0 elements are allowed; k = 0 gives beta * c and the
///          epilogue (bias and activation).
///  KERN-5  Inputs and outputs do not overlap except where an operation allows it. Pointers need no
///          alignment beyond their type's.
///  KERN-6  A result is finite wherever the exact result fits its type, even if intermediate values
///          would overflow. An element that is not used (masked, dropped) does not affect the
///          result, not even when it is infinite or NaN.
/// `type` is the type of activations and weights: of every operand that is a void pointer, except
///  - statistics: mean, rstd, lse, maximum, sum, target_logit, losses;
///  - gradients of weights: dweight, dbias, dtable, dpositions, the sums of column_sum, and c where
///    Gemm::c_type says so.
/// These are f32, or f64 for type f64. The CPU supports f32, f64, bf16 and f16. A 16-bit call gives
/// the results of the f32 call on the same numbers, each rounded once: to the nearest, ties to
/// even, and to an infinity if f16 cannot hold it. CUDA devices compute 16-bit calls in f32, too,
/// but in their own order. 16-bit calls on the CPU are for correctness and not for speed, since
/// they copy each 16-bit operand to f32.
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
  /// The argument of the activation, [m, n] with ldc. Forward: written if not null. Backward: read.
  void* aux = nullptr;
  /// Backward: c = (op(a) * op(b)) .* act'(aux), the gradient in front of the activation.
  bool activation_backward = false;
  std::int64_t batch = 1;
  std::int64_t a_stride = 0, b_stride = 0, c_stride = 0;
};

/// out = act(in), elementwise; out and in may be the same memory.
struct Activate {
  DType type = DType::f32;
  Activation activation = Activation::gelu;
  std::int64_t n = 0;
  const void* in = nullptr;
  void* out = nullptr;
};
/// din = dout * act'(in), or added to din with `add`; din and dout may be the same memory.
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
  const void* gate = nullptr;  ///< [rows, columns]
  const void* up = nullptr;    ///< [rows, columns]
  std::int64_t row_in = 0;     ///< elements from row to row of gate, up, dgate and dup
  void* out = nullptr;         ///< [rows, columns]
  // Backward: reads dout, writes dgate and dup.
  const void* dout = nullptr;
  void* dgate = nullptr;
  void* dup = nullptr;
};

/// Layer norm (Ba et al. 2016). With `rms`, RMS norm (Zhang and Sennrich 2019), which has no mean
/// and no bias.
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
  Norm forward;  ///< in, weight, mean and rstd are read
  const void* dout = nullptr;
  void* din = nullptr;      ///< norm_backward_input: written, or added to with `add`
  bool add = true;          ///< din usually holds the gradient of the residual path already
  void* dweight = nullptr;  ///< norm_backward_weight: added to
  void* dbias = nullptr;    ///< norm_backward_weight: added to; may be null
};

/// Causal self-attention of several heads (Vaswani et al. 2017). Each key-value head serves
/// heads / kv_heads consecutive query heads (Ainslie et al. 2023). With `probabilities`, the
/// time x time matrices are kept for backward. Without, an online softmax keeps only `lse`, the
/// logarithm of each row's sum of exponentials (Milakov and Gimelshein 2018, Dao et al. 2022).
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
  Attention forward;  ///< all operands of the forward call, with its results
  const void* dout = nullptr;
  void* dq = nullptr;  ///< written; laid out as q
  void* dk = nullptr;  ///< written; laid out as k and v
  void* dv = nullptr;
};

/// Rotary position embedding, in place (Su et al. 2021). Rotates the pairs (i, i + head_size / 2).
struct Rope {
  DType type = DType::f32;
  /// `row`: elements from token to token.
  std::int64_t rows = 0, time = 0, heads = 0, head_size = 0, row = 0;
  std::int64_t first_position = 0;  ///< row r has the position first_position + r % time
  float theta = 10000.0f;
  bool inverse = false;  ///< rotate back: the backward pass
  void* x = nullptr;
};

/// out[r] = table[tokens[r] - first] (+ positions[r % time]). Tokens outside
/// [first, first + table_rows) belong to another rank's shard and give zeros instead of a table
/// row.
struct Embedding {
  DType type = DType::f32;
  std::int64_t rows = 0, time = 0, columns = 0;
  const std::int32_t* tokens = nullptr;
  const void* table = nullptr;
  std::int64_t first = 0, table_rows = 0;
  const void* positions = nullptr;  ///< [time, columns]; may be null
  void* out = nullptr;
  // Backward: adds the rows of dout in ascending order, without atomics.
  const void* dout = nullptr;
  void* dtable = nullptr;      ///< may be null
  void* dpositions = nullptr;  ///< may be null
};

/// Softmax cross-entropy over classes that may be divided among ranks.
///  1. `cross_entropy_stats` writes three statistics of the rank's own classes: the maximum, the
///     sum of e^(x - maximum), and the target's logit (-infinity if another rank has the target).
///  2. The ranks gather these and combine them (CombineStats).
///  3. `cross_entropy_finish` writes the losses and turns the logits into their gradient.
/// A rank that has all classes calls `cross_entropy`, which does all of it.
struct CrossEntropy {
  DType type = DType::f32;
  std::int64_t rows = 0;
  std::int64_t first = 0, classes = 0;    ///< this rank has the classes [first, first + classes)
  std::int64_t row = 0;                   ///< elements from row to row of logits
  void* logits = nullptr;                 ///< with `gradient`, overwritten by the gradient
  const std::int32_t* targets = nullptr;  ///< kIgnore: the row has no loss and no gradient
  void* maximum = nullptr;                ///< [rows], as the next two
  void* sum = nullptr;
  void* target_logit = nullptr;
  void* losses = nullptr;  ///< [rows]
  bool gradient = true;
  double scale = 1;  ///< multiplies the gradient
};

/// Combines the statistics that `cross_entropy_stats` wrote on every rank into those of all
/// classes, which `cross_entropy_finish` reads. The sum runs over ranks in ascending order.
struct CombineStats {
  DType type = DType::f32;  ///< of the statistics: f32 or f64
  std::int64_t rows = 0;
  int parts = 1;
  const void* in = nullptr;  ///< [parts, 3, rows]: each rank's maximum, sum, target_logit
  void* out = nullptr;       ///< [3, rows]
};

/// Keeps each element with probability 1 - p and divides it by that; sets all others to 0. The mask
/// is a function of (seed, stream, row number, column), so that it is the same in every layout. out
/// and in may be the same memory. The backward pass is the same call on dout.
struct Dropout {
  DType type = DType::f32;
  float p = 0;
  std::uint64_t seed = 0, stream = 0;
  std::int64_t rows = 0, columns = 0;
  /// The global number of each sample; a sample has `time` rows. Memory of the host or the device.
  /// Null: samples are numbered 0, 1, …
  const std::int64_t* samples = nullptr;
  std::int64_t first_row = 0;  ///< this rank's first row among the rows of `samples`
  std::int64_t time = 1;
  /// The rank has the columns [first_column, first_column + columns) of rows of `all_columns`.
  std::int64_t first_column = 0, all_columns = 0;
  const void* in = nullptr;
  void* out = nullptr;
};

/// Writes images in[b, c, height, width] as a matrix out[(b, y, x), (c, i, j)], with zeros outside
/// the image. `col2im` is its backward: it writes the gradient of the images, out[b, c, y, x], as
/// sums of elements of the matrix `in`.
struct Im2col {
  DType type = DType::f32;
  std::int64_t batch = 0, channels = 0, height = 0, width = 0;
  std::int64_t kernel = 3, stride = 1, padding = 0;
  const void* in = nullptr;
  void* out = nullptr;
};
/// out[b, c, y, x] is the largest element of a window, or a NaN of it. `index` is the element's
/// place in its plane; of equal elements, the first. Backward: writes din from dout and index.
struct MaxPool {
  DType type = DType::f32;
  std::int64_t planes = 0, height = 0, width = 0;  ///< planes: batch * channels
  std::int64_t window = 2;  ///< the stride, too; rows and columns left over are not read
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

/// add, scale and fill, on n elements (see Kernels).
struct Elementwise {
  DType type = DType::f32;
  std::int64_t n = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  void* out = nullptr;  ///< may be a or b
  double factor = 1;
};
/// out[c] += the sum of in[r, c] over rows in ascending order. out is f32, or f64 for type f64.
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
  void* out = nullptr;  ///< rounded to the nearest, ties to even
};

/// A step of AdamW (Loshchilov and Hutter 2019, algorithm 2), decay first, as in torch. It is
/// elementwise, so that any division of the range gives the same bits.
struct AdamW {
  std::int64_t n = 0;
  float* weights = nullptr;
  float* m = nullptr;
  float* v = nullptr;
  const float* gradients = nullptr;
  float rate = 1e-3f, beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f, decay = 0.01f;
  float gradient_scale = 1.0f;  ///< multiplies every gradient first, such as to clip their norm
  std::int64_t step = 1;        ///< counts from 1
};
/// A step of SGD with momentum, as in torch, with g the gradient plus decay * w:
/// m = momentum * m + g; w -= rate * (nesterov ? g + momentum * m : m). m is not used if momentum
/// is 0.
struct Sgd {
  std::int64_t n = 0;
  float* weights = nullptr;
  float* m = nullptr;
  const float* gradients = nullptr;
  float rate = 1e-2f, momentum = 0, decay = 0;
  bool nesterov = false;
  float gradient_scale = 1.0f;
  bool first = false;  ///< the first step: m = g
};
/// out[i] = the sum of squares of chunk i of x, in f64. The last chunk may be shorter.
struct ChunkSquares {
  std::int64_t n = 0, chunk = 1024;
  const float* x = nullptr;
  double* out = nullptr;  ///< memory of the host; valid after Queue::synchronize()
};

/// The functions of a device. Each takes the queue in whose order it takes effect.
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
