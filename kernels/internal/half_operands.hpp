/// One function per operation: it replaces the operands that are 16-bit in a 16-bit call by f32
/// ones. All other operands are f32 or integers in any case.
#pragma once

#include "troupe/kernels/internal/half_widened.hpp"

namespace troupe::kernels::half {

void gemm(Gemm& o, Widened& call);
void activate(Activate& o, Widened& call);
void activate_backward(ActivateBackward& o, Widened& call);
void gated_silu(GatedSilu& o, Widened& call);
void gated_silu_backward(GatedSilu& o, Widened& call);
void norm(Norm& o, Widened& call);
void norm_backward_input(NormBackward& o, Widened& call);
void norm_backward_weight(NormBackward& o, Widened& call);
void attention(Attention& o, Widened& call);
void attention_backward(AttentionBackward& o, Widened& call);
void rope(Rope& o, Widened& call);
void embedding(Embedding& o, Widened& call);
void embedding_backward(Embedding& o, Widened& call);
void cross_entropy(CrossEntropy& o, Widened& call);
void cross_entropy_stats(CrossEntropy& o, Widened& call);
void dropout(Dropout& o, Widened& call);
void im2col(Im2col& o, Widened& call);
void col2im(Im2col& o, Widened& call);
void max_pool(MaxPool& o, Widened& call);
void max_pool_backward(MaxPool& o, Widened& call);
void add(Elementwise& o, Widened& call);
void scale(Elementwise& o, Widened& call);
void fill(Elementwise& o, Widened& call);
void column_sum(ColumnSum& o, Widened& call);

}  // namespace troupe::kernels::half
