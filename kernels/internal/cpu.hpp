/// The CPU's implementations of operations.hpp, for f32 and f64. Each is in the .cpp of its folder;
/// cpu_table.cpp puts them into a table.
#pragma once

#include "troupe/kernels/device/operations.hpp"

namespace troupe::kernels::cpu {

void gemm(Queue& queue, const Gemm& o);
void activate(Queue& queue, const Activate& o);
void activate_backward(Queue& queue, const ActivateBackward& o);
void gated_silu(Queue& queue, const GatedSilu& o);
void gated_silu_backward(Queue& queue, const GatedSilu& o);
void norm(Queue& queue, const Norm& o);
void norm_backward_input(Queue& queue, const NormBackward& o);
void norm_backward_weight(Queue& queue, const NormBackward& o);
void attention(Queue& queue, const Attention& o);
void attention_backward(Queue& queue, const AttentionBackward& o);
void rope(Queue& queue, const Rope& o);
void embedding(Queue& queue, const Embedding& o);
void embedding_backward(Queue& queue, const Embedding& o);
void cross_entropy(Queue& queue, const CrossEntropy& o);
void cross_entropy_stats(Queue& queue, const CrossEntropy& o);
void cross_entropy_finish(Queue& queue, const CrossEntropy& o);
void combine_stats(Queue& queue, const CombineStats& o);
void dropout(Queue& queue, const Dropout& o);
void im2col(Queue& queue, const Im2col& o);
void col2im(Queue& queue, const Im2col& o);
void max_pool(Queue& queue, const MaxPool& o);
void max_pool_backward(Queue& queue, const MaxPool& o);
void transpose(Queue& queue, const Transpose& o);
void add(Queue& queue, const Elementwise& o);
void scale(Queue& queue, const Elementwise& o);
void fill(Queue& queue, const Elementwise& o);
void column_sum(Queue& queue, const ColumnSum& o);
void cast(Queue& queue, const Cast& o);
void adamw(Queue& queue, const AdamW& o);
void sgd(Queue& queue, const Sgd& o);
void chunk_squares(Queue& queue, const ChunkSquares& o);

}  // namespace troupe::kernels::cpu
