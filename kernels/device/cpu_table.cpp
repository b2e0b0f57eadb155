#include "troupe/kernels/device/internal/cpu_table.hpp"

#include "troupe/kernels/internal/cpu.hpp"
#include "troupe/kernels/internal/half_operands.hpp"

namespace troupe::kernels::internal {

const Kernels& cpu_kernels() noexcept {
  static constexpr Kernels table{
      .gemm = cpu::gemm,
      .activate = cpu::activate,
      .activate_backward = cpu::activate_backward,
      .gated_silu = cpu::gated_silu,
      .gated_silu_backward = cpu::gated_silu_backward,
      .norm = cpu::norm,
      .norm_backward_input = cpu::norm_backward_input,
      .norm_backward_weight = cpu::norm_backward_weight,
      .attention = cpu::attention,
      .attention_backward = cpu::attention_backward,
      .rope = cpu::rope,
      .embedding = cpu::embedding,
      .embedding_backward = cpu::embedding_backward,
      .cross_entropy = cpu::cross_entropy,
      .cross_entropy_stats = cpu::cross_entropy_stats,
      .cross_entropy_finish = cpu::cross_entropy_finish,
      .combine_stats = cpu::combine_stats,
      .dropout = cpu::dropout,
      .im2col = cpu::im2col,
      .col2im = cpu::col2im,
      .max_pool = cpu::max_pool,
      .max_pool_backward = cpu::max_pool_backward,
      .transpose = cpu::transpose,
      .add = cpu::add,
      .scale = cpu::scale,
      .fill = cpu::fill,
      .column_sum = cpu::column_sum,
      .cast = cpu::cast,
      .adamw = cpu::adamw,
      .sgd = cpu::sgd,
      .chunk_squares = cpu::chunk_squares,
  };
  return table;
}

}  // namespace troupe::kernels::internal
