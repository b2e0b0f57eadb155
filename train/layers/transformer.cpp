#include "troupe/train/layers/transformer.hpp"

namespace troupe::train::layers {
namespace {

parts::BlockConfig gpt(const GptBlockConfig& c) {
  return {.attention = {.channels = c.channels,
                        .heads = c.heads,
                        .kv_heads = c.heads,
                        .bias = c.bias,
                        .deviation = c.deviation,
                        .residual_deviation = c.residual_deviation},
          .norm = {.channels = c.channels, .bias = c.bias},
          .mlp = {.channels = c.channels,
                  .inner = c.inner == 0 ? 4 * c.channels : c.inner,
                  .bias = c.bias,
                  .deviation = c.deviation,
                  .residual_deviation = c.residual_deviation},
          .dropout = c.dropout};
}

parts::BlockConfig llama(const LlamaBlockConfig& c) {
  return {.attention = {.channels = c.channels,
                        .heads = c.heads,
                        .kv_heads = c.kv_heads == 0 ? c.heads : c.kv_heads,
                        .fused = false,
                        .bias = false,
                        .rope_theta = c.rope_theta,
                        .deviation = c.deviation,
                        .residual_deviation = c.residual_deviation},
          .norm = {.channels = c.channels, .rms = true, .bias = false, .epsilon = c.epsilon},
          .mlp = {.channels = c.channels,
                  .inner = c.inner,
                  .bias = false,
                  .deviation = c.deviation,
                  .residual_deviation = c.residual_deviation},
          .dropout = c.dropout,
          .norm1 = "input_layernorm",
          .core = "self_attn",
          .norm2 = "post_attention_layernorm",
          .inner = "mlp"};
}

}  // namespace

GptBlock::GptBlock(std::string name, const GptBlockConfig& config)
    : PreNormBlock(std::move(name), gpt(config)) {}

LlamaBlock::LlamaBlock(std::string name, const LlamaBlockConfig& config)
    : PreNormBlock(std::move(name), llama(config)) {}

}  // namespace troupe::train::layers
