/// Runs every operation once, at any size and on any device, for the tests of sizes and of
/// devices.
#pragma once

#include "testing.hpp"
#include "troupe/kernels/cross_entropy/cross_entropy.hpp"

#include <algorithm>
#include <deque>
#include <type_traits>

namespace troupe::kernels {

/// The type of statistics and of weight gradients, for activations of type T.
template <class T>
using WideOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// One run of an operation: it hands out memory and collects the results.
template <class T>
class Bench {
 public:
  using Wide = WideOf<T>;
  Bench(const Kernels& kernels, Queue& queue, std::int64_t rows, std::int64_t columns)
      : kernels(kernels), queue(queue), rows(rows), columns(columns), n(rows * columns) {}
  virtual ~Bench() = default;
  T* random(std::int64_t count, double scale = 2) {
    return add(randoms<T>(count, 100 + count_++, scale));
  }
  T* filled(std::int64_t count, T value = T(0)) {
    return add(std::vector<T>(static_cast<std::size_t>(count), value));
  }
  /// Like random(), for numbers of the statistics' type.
  Wide* wide_random(std::int64_t count, double scale = 2) {
    return add_wide(randoms<Wide>(count, 100 + count_++, scale));
  }
  Wide* wide_filled(std::int64_t count) {
    return add_wide(std::vector<Wide>(static_cast<std::size_t>(count)));
  }
  virtual std::int32_t* integers(const std::vector<std::int32_t>& values) = 0;
  /// Returns memory of the host.
  double* doubles(std::int64_t count) {
    return doubles_.emplace_back(static_cast<std::size_t>(count)).data();
  }
  /// Returns all numbers of all memory that was handed out, in order.
  std::vector<T> results() {
    queue.synchronize();
    std::vector<T> all = values();
    for (const auto& numbers : doubles_)
      for (const double number : numbers) all.push_back(static_cast<T>(number));
    return all;
  }

  const Kernels& kernels;
  Queue& queue;
  const std::int64_t rows, columns, n;

 protected:
  virtual T* add(std::vector<T> values) = 0;
  virtual Wide* add_wide(const std::vector<Wide>& values) {
    if constexpr (std::is_same_v<T, Wide>) return add(values);
    return nullptr;
  }
  virtual std::vector<T> values() = 0;

 private:
  std::uint64_t count_ = 0;
  std::deque<std::vector<double>> doubles_;
};

template <class T>
void run_activation(Bench<T>& b, Activation activation, double scale = 5) {
  T *in = b.random(b.n, scale), *dout = b.random(b.n), *out = b.filled(b.n), *din = b.random(b.n);
  b.kernels.activate(b.queue, {type_of<T>, activation, b.n, in, out});
  b.kernels.activate_backward(b.queue, {type_of<T>, activation, b.n, in, dout, din, true});
}
template <class T>
void run_gated(Bench<T>& b) {
  T *in = b.random(2 * b.n, 5), *dout = b.random(b.n), *out = b.filled(b.n),
    *din = b.filled(2 * b.n);
  const GatedSilu o{type_of<T>,    b.rows, b.columns, in,  in + b.columns,
                    2 * b.columns, out,    dout,      din, din + b.columns};
  b.kernels.gated_silu(b.queue, o);
  b.kernels.gated_silu_backward(b.queue, o);
}
template <class T>
void run_norm(Bench<T>& b, bool rms, double scale = 2) {
  T *in = scale == 0 ? b.filled(b.n, T(3)) : b.random(b.n, scale), *weight = b.random(b.columns),
    *bias = b.random(b.columns), *out = b.filled(b.n);
  WideOf<T>*mean = b.wide_filled(b.rows), *rstd = b.wide_filled(b.rows);
  T *dout = b.random(b.n), *din = b.random(b.n);
  WideOf<T>*dweight = b.wide_random(b.columns), *dbias = b.wide_random(b.columns);
  const Norm o{type_of<T>,           rms, 1e-5f, b.rows, b.columns, in, weight,
               rms ? nullptr : bias, out, mean,  rstd};
  const NormBackward back{o, dout, din, true, dweight, rms ? nullptr : dbias};
  b.kernels.norm(b.queue, o);
  b.kernels.norm_backward_input(b.queue, back);
  b.kernels.norm_backward_weight(b.queue, back);
}
template <class T>
void run_rope(Bench<T>& b) {
  T* x = b.random(b.n * 6);
  b.kernels.rope(b.queue,
                 {type_of<T>, b.rows, 7, b.columns, 6, b.columns * 6, 3, 10000.0f, false, x});
}
template <class T>
void run_loss(Bench<T>& b, double scale = 5) {
  if (b.columns == 0) return;
  T *logits = b.random(b.n, scale), *apart = b.random(b.n, scale);
  WideOf<T>*losses = b.wide_filled(b.rows), *stats = b.wide_filled(3 * b.rows);
  WideOf<T>*top = stats, *sum = stats + b.rows, *target = stats + 2 * b.rows;
  std::vector<std::int32_t> targets;
  for (std::int64_t r = 0; r < b.rows; ++r)
    targets.push_back(r % 3 == 2 ? kIgnore : static_cast<std::int32_t>(r * 7 % b.columns));
  CrossEntropy o{type_of<T>, b.rows, 0,      b.columns, b.columns, logits, b.integers(targets),
                 top,        sum,    target, losses,    true,      0.125};
  b.kernels.cross_entropy(b.queue, o);
  o.logits = apart;
  b.kernels.cross_entropy_stats(b.queue, o);
  b.kernels.cross_entropy_finish(b.queue, o);
  b.kernels.combine_stats(b.queue, {type_of<WideOf<T>>, b.rows, 2, b.wide_random(6 * b.rows),
                                    b.wide_filled(3 * b.rows)});
}
template <class T>
void run_dropout(Bench<T>& b) {
  T *in = b.random(b.n), *out = b.filled(b.n);
  b.kernels.dropout(b.queue, {type_of<T>, 0.25f, 3, 4, b.rows, b.columns, nullptr, 3, 2, 5,
                              b.columns + 9, in, out});
}
template <class T>
void run_images(Bench<T>& b) {
  T *in = b.random(2 * 3 * b.n), *matrix = b.filled(2 * b.n * 27), *back = b.filled(2 * 3 * b.n);
  Im2col o{type_of<T>, 2, 3, b.rows, b.columns, 3, 1, 1, in, matrix};
  b.kernels.im2col(b.queue, o);
  o.in = matrix;
  o.out = back;
  b.kernels.col2im(b.queue, o);
}
template <class T>
void run_pool(Bench<T>& b) {
  const std::int64_t places = 3 * (b.rows / 2) * (b.columns / 2);
  T *in = b.random(3 * b.n), *out = b.filled(places), *dout = b.random(places),
    *din = b.filled(3 * b.n);
  std::int32_t* index = b.integers(std::vector<std::int32_t>(static_cast<std::size_t>(places)));
  const MaxPool o{type_of<T>, 3, b.rows, b.columns, 2, in, out, index, dout, din};
  b.kernels.max_pool(b.queue, o);
  b.kernels.max_pool_backward(b.queue, o);
}
template <class T>
void run_transpose(Bench<T>& b) {
  T *in = b.random(2 * b.n), *out = b.filled(2 * b.n);
  b.kernels.transpose(b.queue, {type_of<T>, 2, b.rows, b.columns, 1, in, out});
}

template <class T>
void run_gemm(Bench<T>& b, Op a_op, Op b_op) {
  const std::int64_t k = 37, lda = a_op == Op::none ? k : b.rows;
  T *a = b.random(2 * b.rows * k), *w = b.random(b.columns * k), *bias = b.random(b.columns);
  T *c = b.random(2 * b.n), *aux = b.filled(2 * b.n), *back = b.filled(2 * b.n);
  Gemm o{.type = type_of<T>,
         .c_type = type_of<T>,
         .a_op = a_op,
         .b_op = b_op,
         .m = b.rows,
         .n = b.columns,
         .k = k,
         .a = a,
         .lda = std::max<std::int64_t>(1, lda),
         .b = w,
         .ldb = std::max<std::int64_t>(1, b_op == Op::none ? b.columns : k),
         .beta = 0.5f,
         .c = c,
         .ldc = std::max<std::int64_t>(1, b.columns),
         .bias = bias,
         .activation = Activation::gelu,
         .aux = aux,
         .batch = 2,
         .a_stride = b.rows * k,
         .b_stride = 0,
         .c_stride = b.n};
  b.kernels.gemm(b.queue, o);
  o.c = back;
  o.beta = 0;
  o.bias = nullptr;
  o.activation_backward = true;
  b.kernels.gemm(b.queue, o);
  o.k = 0;  // without a product: only beta * c
  o.c = c;
  o.beta = 2;
  o.aux = nullptr;
  o.activation = Activation::none;
  o.activation_backward = false;
  b.kernels.gemm(b.queue, o);
  o.k = k;  // a gradient of weights
  o.c_type = type_of<WideOf<T>>;
  o.c = b.wide_random(2 * b.n);
  o.beta = 1;
  b.kernels.gemm(b.queue, o);
}
template <class T>
void run_attention(Bench<T>& b, bool keep) {
  const std::int64_t time = std::min<std::int64_t>(b.columns, 70), heads = 4, kv = 2, size = 6;
  const std::int64_t batch = std::min<std::int64_t>(b.rows, 3), row = (heads + 2 * kv) * size;
  const std::int64_t tokens = batch * time, squares = keep ? tokens * heads * time : 0;
  T *qkv = b.random(tokens * row), *out = b.filled(tokens * heads * size);
  WideOf<T>* lse = b.wide_filled(tokens * heads);
  T *p = b.filled(squares), *dqkv = b.filled(tokens * row);
  T* dout = b.random(tokens * heads * size);
  const Attention o{.type = type_of<T>,
                    .batch = batch,
                    .time = time,
                    .heads = heads,
                    .kv_heads = kv,
                    .head_size = size,
                    .q = qkv,
                    .k = qkv + heads * size,
                    .v = qkv + (heads + kv) * size,
                    .q_row = row,
                    .kv_row = row,
                    .out = out,
                    .lse = lse,
                    .probabilities = keep ? p : nullptr};
  b.kernels.attention(b.queue, o);
  b.kernels.attention_backward(b.queue,
                               {o, dout, dqkv, dqkv + heads * size, dqkv + (heads + kv) * size});
}
template <class T>
void run_embedding(Bench<T>& b) {
  const std::int64_t time = 5, rows = b.rows * time;
  std::vector<std::int32_t> tokens;
  for (std::int64_t r = 0; r < rows; ++r)  // many targets are equal, some belong to another rank
    tokens.push_back(static_cast<std::int32_t>(r % 3 == 0 ? 4 : r * 7 % 23));
  T *table = b.random(11 * b.columns), *positions = b.random(time * b.columns);
  T *out = b.filled(rows * b.columns), *dout = b.random(rows * b.columns);
  WideOf<T>*dtable = b.wide_random(11 * b.columns), *dpositions = b.wide_random(time * b.columns);
  const Embedding o{.type = type_of<T>,
                    .rows = rows,
                    .time = time,
                    .columns = b.columns,
                    .tokens = b.integers(tokens),
                    .table = table,
                    .first = 3,
                    .table_rows = 11,
                    .positions = positions,
                    .out = out,
                    .dout = dout,
                    .dtable = dtable,
                    .dpositions = dpositions};
  b.kernels.embedding(b.queue, o);
  b.kernels.embedding_backward(b.queue, o);
}
template <class T>
void run_elementwise(Bench<T>& b) {
  T *x = b.random(b.n), *y = b.random(b.n), *sum = b.filled(b.n), *scaled = b.filled(b.n);
  T* filled = b.filled(b.n);
  WideOf<T>* columns = b.wide_random(b.columns);
  b.kernels.add(b.queue, {type_of<T>, b.n, x, y, sum, 0.5});
  b.kernels.scale(b.queue, {type_of<T>, b.n, x, nullptr, scaled, -3});
  b.kernels.fill(b.queue, {type_of<T>, b.n, nullptr, nullptr, filled, 7});
  b.kernels.column_sum(b.queue, {type_of<T>, b.rows, b.columns, x, columns});
}
template <class T>
void run_casts(Bench<T>& b) {
  T *x = b.random(b.n), *half = b.filled(b.n), *back = b.filled(2 * b.n);
  b.kernels.cast(b.queue, {type_of<T>, DType::bf16, b.n, x, half});
  b.kernels.cast(b.queue, {DType::bf16, type_of<T>, b.n, half, back});
  b.kernels.cast(b.queue, {type_of<T>, DType::f16, b.n, x, half});
  b.kernels.cast(b.queue, {DType::f16, type_of<T>, b.n, half, back + b.n});
  b.kernels.fill(b.queue, {type_of<T>, b.n, nullptr, nullptr, half, 0});
}
inline void run_adamw(Bench<float>& b) {
  float *w = b.random(b.n), *m = b.filled(b.n), *v = b.filled(b.n), *g = b.random(b.n);
  for (const std::int64_t step : {1, 2, 3})
    b.kernels.adamw(b.queue, {.n = b.n,
                              .weights = w,
                              .m = m,
                              .v = v,
                              .gradients = g,
                              .rate = 0.1f,
                              .gradient_scale = 0.5f,
                              .step = step});
}
inline void run_sgd(Bench<float>& b) {
  float *w = b.random(b.n), *m = b.filled(b.n), *g = b.random(b.n);
  for (const bool first : {true, false})
    b.kernels.sgd(b.queue, {.n = b.n,
                            .weights = w,
                            .m = m,
                            .gradients = g,
                            .rate = 0.1f,
                            .momentum = 0.9f,
                            .decay = 0.1f,
                            .nesterov = true,
                            .first = first});
}
inline void run_squares(Bench<float>& b) {
  const float* x = b.random(b.n);
  b.kernels.chunk_squares(b.queue, {b.n, 100, x, b.doubles((b.n + 99) / 100)});
}

struct Operation {
  const char* name;
  void (*single)(Bench<float>&);
  void (*twice)(Bench<double>&);  ///< null for operations of f32 only
};
inline void PrintTo(const Operation& operation, std::ostream* out) {
  *out << operation.name;
}
#define OPERATION(name, call) {name, [](Bench<float>& b) { call; }, [](Bench<double>& b) { call; }}
inline const Operation kOperations[] = {
    OPERATION("relu", run_activation(b, Activation::relu)),
    OPERATION("gelu", run_activation(b, Activation::gelu)),
    OPERATION("silu", run_activation(b, Activation::silu)),
    OPERATION("gated_silu", run_gated(b)),
    OPERATION("layer_norm", run_norm(b, false)),
    OPERATION("rms_norm", run_norm(b, true)),
    OPERATION("gelu_huge", run_activation(b, Activation::gelu, 1e25)),
    OPERATION("silu_huge", run_activation(b, Activation::silu, 1e25)),
    OPERATION("layer_norm_huge", run_norm(b, false, 1e25)),
    OPERATION("rms_norm_huge", run_norm(b, true, 1e25)),
    OPERATION("layer_norm_equal", run_norm(b, false, 0)),
    OPERATION("cross_entropy_huge", run_loss(b, 1e30)),
    OPERATION("rope", run_rope(b)),
    OPERATION("cross_entropy", run_loss(b)),
    OPERATION("dropout", run_dropout(b)),
    OPERATION("images", run_images(b)),
    OPERATION("max_pool", run_pool(b)),
    OPERATION("transpose", run_transpose(b)),
    OPERATION("gemm", run_gemm(b, Op::none, Op::transpose)),
    OPERATION("gemm_first_flipped", run_gemm(b, Op::transpose, Op::none)),
    OPERATION("attention", run_attention(b, false)),
    OPERATION("attention_kept", run_attention(b, true)),
    OPERATION("embedding", run_embedding(b)),
    OPERATION("elementwise", run_elementwise(b)),
    OPERATION("casts", run_casts(b)),
    {"adamw", run_adamw, nullptr},
    {"sgd", run_sgd, nullptr},
    {"squares", run_squares, nullptr},
};
#undef OPERATION

inline constexpr std::pair<std::int64_t, std::int64_t> kShapes[] = {
    {0, 33}, {7, 0}, {1, 1}, {3, 31}, {5, 33}, {2, 1025}, {1025, 3}, {33, 64}};

}  // namespace troupe::kernels
