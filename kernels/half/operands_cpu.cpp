#include "troupe/kernels/internal/half_operands.hpp"

namespace troupe::kernels::half {
namespace {

Area flipped(Op op, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  return op == Op::none ? Area(rows, columns, stride) : Area(columns, rows, stride);
}

Area batched(Area area, const Gemm& o, std::int64_t stride) {
  area.batch = o.batch;
  area.batch_stride = stride;
  return area;
}

/// Counts the places of a kernel along an edge of this size.
std::int64_t places(const Im2col& o, std::int64_t size) {
  const std::int64_t room = size + 2 * o.padding - o.kernel;
  return room < 0 ? 0 : room / o.stride + 1;
}

Area pixels(const Im2col& o) {
  return Area(o.batch * o.channels * o.height * o.width);
}

Area patches(const Im2col& o) {
  return Area(o.batch * places(o, o.height) * places(o, o.width) * o.channels * o.kernel *
              o.kernel);
}

Area pixels(const MaxPool& o) {
  return Area(o.planes * o.height * o.width);
}

Area windows(const MaxPool& o) {
  return Area(o.planes * (o.height / o.window) * (o.width / o.window));
}

Area gates(const GatedSilu& o) {
  return {o.rows, o.columns, o.row_in};
}

Area queries(const Attention& o) {
  return {o.batch * o.time, o.heads * o.head_size, o.q_row};
}

Area keys(const Attention& o) {
  return {o.batch * o.time, o.kv_heads * o.head_size, o.kv_row};
}

Area squares(const Attention& o) {
  return Area(o.batch * o.heads * o.time * o.time);
}

Area outputs(const Attention& o) {
  return Area(o.batch * o.time * o.heads * o.head_size);
}

void read_projections(Attention& o, Widened& call) {
  call.in(o.q, queries(o));
  call.in(o.k, keys(o));
  call.in(o.v, keys(o));
}

}  // namespace

void gemm(Gemm& o, Widened& call) {
  const Area results = batched({o.m, o.n, o.ldc}, o, o.c_stride);
  call.in(o.a, batched(flipped(o.a_op, o.m, o.k, o.lda), o, o.a_stride));
  call.in(o.b, batched(flipped(o.b_op, o.k, o.n, o.ldb), o, o.b_stride));
  call.in(o.bias, Area(o.n));
  if (o.activation_backward)
    call.in(o.aux, results);
  else
    call.out(o.aux, results);
  if (is_16_bit(o.c_type)) call.out(o.c, results, o.beta != 0.0f);
  o.c_type = DType::f32;
}

void activate(Activate& o, Widened& call) {
  call.in(o.in, Area(o.n));
  call.out(o.out, Area(o.n));
}

void activate_backward(ActivateBackward& o, Widened& call) {
  call.in(o.in, Area(o.n));
  call.in(o.dout, Area(o.n));
  call.out(o.din, Area(o.n), o.add);
}

void gated_silu(GatedSilu& o, Widened& call) {
  call.in(o.gate, gates(o));
  call.in(o.up, gates(o));
  call.out(o.out, Area(o.rows * o.columns));
}

void gated_silu_backward(GatedSilu& o, Widened& call) {
  call.in(o.gate, gates(o));
  call.in(o.up, gates(o));
  call.in(o.dout, Area(o.rows * o.columns));
  call.out(o.dgate, gates(o));
  call.out(o.dup, gates(o));
}

void norm(Norm& o, Widened& call) {
  call.in(o.in, Area(o.rows * o.columns));
  call.in(o.weight, Area(o.columns));
  call.in(o.bias, Area(o.columns));
  call.out(o.out, Area(o.rows * o.columns));
}

void norm_backward_input(NormBackward& o, Widened& call) {
  const Area all(o.forward.rows * o.forward.columns);
  call.in(o.forward.in, all);
  call.in(o.forward.weight, Area(o.forward.columns));
  call.in(o.dout, all);
  call.out(o.din, all, o.add);
}

void norm_backward_weight(NormBackward& o, Widened& call) {
  const Area all(o.forward.rows * o.forward.columns);
  call.in(o.forward.in, all);
  call.in(o.dout, all);
}

void attention(Attention& o, Widened& call) {
  read_projections(o, call);
  call.out(o.out, outputs(o));
  call.out(o.probabilities, squares(o));
}

void attention_backward(AttentionBackward& o, Widened& call) {
  read_projections(o.forward, call);
  call.in(o.forward.out, outputs(o.forward));
  call.in(o.forward.probabilities, squares(o.forward));
  call.in(o.dout, outputs(o.forward));
  call.out(o.dq, queries(o.forward));
  call.out(o.dk, keys(o.forward));
  call.out(o.dv, keys(o.forward));
}

void rope(Rope& o, Widened& call) {
  call.out(o.x, {o.rows, o.heads * o.head_size, o.row}, true);
}

void embedding(Embedding& o, Widened& call) {
  call.in(o.table, Area(o.table_rows * o.columns));
  call.in(o.positions, Area(o.time * o.columns));
  call.out(o.out, Area(o.rows * o.columns));
}

void embedding_backward(Embedding& o, Widened& call) {
  call.in(o.dout, Area(o.rows * o.columns));
}

void cross_entropy(CrossEntropy& o, Widened& call) {
  const Area logits(o.rows, o.classes, o.row);
  if (o.gradient)
    call.out(o.logits, logits, true);
  else
    call.in(o.logits, logits);
}

void cross_entropy_stats(CrossEntropy& o, Widened& call) {
  call.in(o.logits, {o.rows, o.classes, o.row});
}

void dropout(Dropout& o, Widened& call) {
  call.in(o.in, Area(o.rows * o.columns));
  call.out(o.out, Area(o.rows * o.columns));
}

void im2col(Im2col& o, Widened& call) {
  call.in(o.in, pixels(o));
  call.out(o.out, patches(o));
}

void col2im(Im2col& o, Widened& call) {
  call.in(o.in, patches(o));
  call.out(o.out, pixels(o));
}

void max_pool(MaxPool& o, Widened& call) {
  call.in(o.in, pixels(o));
  call.out(o.out, windows(o));
}

void max_pool_backward(MaxPool& o, Widened& call) {
  call.in(o.dout, windows(o));
  call.out(o.din, pixels(o));
}

void add(Elementwise& o, Widened& call) {
  call.in(o.a, Area(o.n));
  call.in(o.b, Area(o.n));
  call.out(o.out, Area(o.n));
}

void scale(Elementwise& o, Widened& call) {
  call.in(o.a, Area(o.n));
  call.out(o.out, Area(o.n));
}

void fill(Elementwise& o, Widened& call) {
  call.out(o.out, Area(o.n));
}

void column_sum(ColumnSum& o, Widened& call) {
  call.in(o.in, Area(o.rows * o.columns));
}

}  // namespace troupe::kernels::half
