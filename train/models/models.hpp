/// Models: lists of layers for an Engine, or for train::check_gradients().
///
///     Model model = models::gpt2(models::gpt2_preset("gpt2"));  // 124,439,808 parameters
///     Model small = models::gpt2({.vocabulary = 65, .context = 64, .layers = 4, .heads = 4,
///                                 .channels = 128});
///
/// Tensors have Hugging Face's names. Matrices are [out, in], as in its Llama. Its GPT-2 stores
/// attn.c_attn, attn.c_proj, mlp.c_fc and mlp.c_proj as [in, out]: transpose them, even square
/// ones. Every function throws InvalidArgument, naming the layer, for sizes that make no model.
#pragma once

#include "troupe/train/layers/layer.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace troupe::train::models {

struct Gpt2Config {
  std::int64_t vocabulary = 50257;
  std::int64_t context = 1024;  ///< longest row
  std::int64_t layers = 12, heads = 12, channels = 768;
  bool bias = true;   ///< in matrices and norms
  bool tied = true;   ///< the head's projection is the token embedding
  float dropout = 0;  ///< of the embedding, and of the outputs that blocks add to the residual
                      ///< stream
};
/// Returns the configuration "gpt2" (124M), "gpt2-medium", "gpt2-large" or "gpt2-xl", or one of
/// nanoGPT's models of 65 characters without biases, "char" (10.7M) or "char-small" (0.8M).
/// Throws InvalidArgument, listing the names, for another name.
TROUPE_API Gpt2Config gpt2_preset(std::string_view name);
/// Makes a GPT-2 (Radford et al. 2019): layers "transformer", "transformer.h.0", ...,
/// "transformer.ln_f". It takes i32 [batch, time]. Initial weights are normal with deviation
/// 0.02, divided by sqrt(2 * layers) for the projections into the residual stream.
TROUPE_API Model gpt2(const Gpt2Config& config);

struct LlamaConfig {
  std::int64_t vocabulary = 32000;
  std::int64_t layers = 22, heads = 32, kv_heads = 4, channels = 2048;
  std::int64_t inner = 5632;  ///< of the MLPs
  bool tied = false;
  float rope_theta = 10000.0f;
  float epsilon = 1e-5f;
};
/// Makes a Llama (Touvron et al. 2023) with grouped-query attention: layers "model",
/// "model.layers.0", ..., "model.norm"; the projection is "lm_head". It takes i32 [batch, time].
/// Initial weights are as in gpt2().
TROUPE_API Model llama(const LlamaConfig& config);

struct MlpConfig {
  std::int64_t in = 784;
  std::vector<std::int64_t> hidden = {256, 256};
  std::int64_t classes = 10;
};
/// Makes a classifier of dense layers with ReLU: "layers.0", "layers.1", ... It takes [batch,
/// in].
TROUPE_API Model mlp(const MlpConfig& config);

struct CnnConfig {
  std::int64_t channels = 1, height = 28, width = 28;
  std::int64_t first = 6, second = 16;  ///< channels of the two convolutions
  std::int64_t kernel = 5, padding = 2;
  std::int64_t hidden = 120;
  std::int64_t classes = 10;
};
/// Makes a classifier like LeNet-5 (LeCun et al. 1998) with ReLU and max pooling: conv1, pool1,
/// conv2, pool2, flatten, fc1, fc2. It takes [batch, channels, height, width].
TROUPE_API Model cnn(const CnnConfig& config);

}  // namespace troupe::train::models
