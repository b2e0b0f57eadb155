#include "troupe/kernels/device/internal/cpu_table.hpp"

#include "troupe/kernels/internal/cpu.hpp"
#include "troupe/kernels/internal/half_operands.hpp"

namespace troupe::kernels::internal {
namespace {

/// Returns the type of a call; a backward struct has it in its forward struct.
template <class O>
auto& type_in(O& o) {
  if constexpr (requires { o.forward.type; })
    return o.forward.type;
  else
    return o.type;
}

/// Runs an operation of any type. A 16-bit call runs `body` on f32 copies of the operands and
/// rounds its results once.
template <class O, void (*body)(Queue&, const O&), void (*operands)(O&, half::Widened&)>
void any_type(Queue& queue, const O& o) {
  if (!half::is_16_bit(type_in(o))) return body(queue, o);
  O wide = o;
  half::Widened call(queue, type_in(o));
  operands(wide, call);
  type_in(wide) = DType::f32;
  body(queue, wide);
  call.round();
}

}  // namespace

const Kernels& cpu_kernels() noexcept {
  static constexpr Kernels kTable{
      .gemm = any_type<Gemm, cpu::gemm, half::gemm>,
      .activate = any_type<Activate, cpu::activate, half::activate>,
      .activate_backward =
          any_type<ActivateBackward, cpu::activate_backward, half::activate_backward>,
      .gated_silu = any_type<GatedSilu, cpu::gated_silu, half::gated_silu>,
      .gated_silu_backward =
          any_type<GatedSilu, cpu::gated_silu_backward, half::gated_silu_backward>,
      .norm = any_type<Norm, cpu::norm, half::norm>,
      .norm_backward_input =
          any_type<NormBackward, cpu::norm_backward_input, half::norm_backward_input>,
      .norm_backward_weight =
          any_type<NormBackward, cpu::norm_backward_weight, half::norm_backward_weight>,
      .attention = any_type<Attention, cpu::attention, half::attention>,
      .attention_backward =
          any_type<AttentionBackward, cpu::attention_backward, half::attention_backward>,
      .rope = any_type<Rope, cpu::rope, half::rope>,
      .embedding = any_type<Embedding, cpu::embedding, half::embedding>,
      .embedding_backward = any_type<Embedding, cpu::embedding_backward, half::embedding_backward>,
      .cross_entropy = any_type<CrossEntropy, cpu::cross_entropy, half::cross_entropy>,
      .cross_entropy_stats =
          any_type<CrossEntropy, cpu::cross_entropy_stats, half::cross_entropy_stats>,
      .cross_entropy_finish =
          any_type<CrossEntropy, cpu::cross_entropy_finish, half::cross_entropy>,
      .combine_stats = cpu::combine_stats,
      .dropout = any_type<Dropout, cpu::dropout, half::dropout>,
      .im2col = any_type<Im2col, cpu::im2col, half::im2col>,
      .col2im = any_type<Im2col, cpu::col2im, half::col2im>,
      .max_pool = any_type<MaxPool, cpu::max_pool, half::max_pool>,
      .max_pool_backward = any_type<MaxPool, cpu::max_pool_backward, half::max_pool_backward>,
      .transpose = cpu::transpose,
      .add = any_type<Elementwise, cpu::add, half::add>,
      .scale = any_type<Elementwise, cpu::scale, half::scale>,
      .fill = any_type<Elementwise, cpu::fill, half::fill>,
      .column_sum = any_type<ColumnSum, cpu::column_sum, half::column_sum>,
      .cast = cpu::cast,
      .adamw = cpu::adamw,
      .sgd = cpu::sgd,
      .chunk_squares = cpu::chunk_squares,
  };
  return kTable;
}

}  // namespace troupe::kernels::internal
