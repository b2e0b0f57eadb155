/// Transformer blocks: GptBlock as in GPT-2 (Radford et al. 2019), LlamaBlock as in Llama
/// (Touvron et al. 2023).
///
///     model.push_back(std::make_unique<GptBlock>("transformer.h.0",
///                                                GptBlockConfig{.channels = 768, .heads = 12}));
///
/// Both map [batch, time, channels] of the layout's type to the same shape. Matrices are [out,
/// in], as in Hugging Face's Llama; its GPT-2 (Conv1D) stores [in, out], which must be
/// transposed. For rows of up to 512 tokens, blocks save the attention probabilities, batch *
/// heads * time^2 numbers. Longer rows use an online softmax (Dao et al. 2022).
/// Recompute::selective computes the probabilities again in backward and gives the same bits.
#pragma once

#include "troupe/train/layers/parts/block.hpp"

namespace troupe::train::layers {

struct GptBlockConfig {
  std::int64_t channels = 0, heads = 0;
  std::int64_t inner = 0;  ///< of the MLP; 0: 4 * channels
  bool bias = true;        ///< in matrices and norms
  float dropout = 0;       ///< on the outputs of attention and MLP, before they are added to the
                           ///< residual stream
  float deviation = 0.02f;
  float residual_deviation = 0.02f;  ///< of the two projections into the residual stream
};

/// Layer norm, causal attention, tanh-GELU. Tensors: ln_1, attn.c_attn (query, key, value),
/// attn.c_proj, ln_2, mlp.c_fc, mlp.c_proj.
class TROUPE_API GptBlock final : public parts::PreNormBlock<parts::Mlp> {
 public:
  /// Throws InvalidArgument when heads does not divide channels, or dropout is outside [0, 1).
  GptBlock(std::string name, const GptBlockConfig& config);
};

struct LlamaBlockConfig {
  std::int64_t channels = 0, heads = 0;
  std::int64_t kv_heads = 0;  ///< 0: as many as heads
  std::int64_t inner = 0;     ///< of the MLP
  float rope_theta = 10000.0f;
  float epsilon = 1e-5f;
  float dropout = 0;
  float deviation = 0.02f;
  float residual_deviation = 0.02f;
};

/// RMS norm, rotary embedding, grouped-query attention, SwiGLU, no biases. Tensors:
/// input_layernorm, self_attn.{q,k,v,o}_proj, post_attention_layernorm, mlp.{gate,up,down}_proj.
class TROUPE_API LlamaBlock final : public parts::PreNormBlock<parts::SwiGlu> {
 public:
  /// Throws InvalidArgument when heads does not divide channels, kv_heads does not divide heads,
  /// channels / heads is odd, or dropout is outside [0, 1).
  LlamaBlock(std::string name, const LlamaBlockConfig& config);
};

}  // namespace troupe::train::layers
