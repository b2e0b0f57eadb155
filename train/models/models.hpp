/// Models: lists of layers for an Engine or for train::check_gradients().
///
///     Model model = models::gpt2(models::gpt2_preset("gpt2"));  // 124,439,808 parameters
///     Model small = models::gpt2({.vocabulary = 65, .context = 64, .layers = 4, .heads = 4,
///                                 .channels = 128});
///
/// Names of tensors are Hugging Face's. Matrices are [out, in]: those of its GPT-2 (attn.c_attn,
/// attn.c_proj, mlp.c_fc, mlp.c_proj) are stored [in, out] and must be transposed, also where they
/// are square; its Llama is [out, in] as here. Every function throws InvalidArgument, naming the
/// layer, for sizes that make no model.
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
  float dropout = 0;  ///< of the embedding, and of what blocks add to the residual stream
};
/// "gpt2" (124M), "gpt2-medium", "gpt2-large", "gpt2-xl"; "char" (10.7M) and "char-small" (0.8M):
/// nanoGPT's models of 65 characters, without biases. Throws InvalidArgument, listing them, for
/// another name.
TROUPE_API Gpt2Config gpt2_preset(std::string_view name);
/// GPT-2 (Radford et al. 2019): layers "transformer", "transformer.h.0", ..., "transformer.ln_f".
/// Takes i32 [batch, time]. Weights begin normal with deviation 0.02, the projections into the
/// residual stream divided by sqrt(2 * layers).
TROUPE_API Model gpt2(const Gpt2Config& config);

struct LlamaConfig {
  std::int64_t vocabulary = 32000;
  std::int64_t layers = 22, heads = 32, kv_heads = 4, channels = 2048;
  std::int64_t inner = 5632;  ///< of the MLPs
  bool tied = false;
  float rope_theta = 10000.0f;
  float epsilon = 1e-5f;
};
/// Llama (Touvron et al. 2023) with grouped-query attention: layers "model", "model.layers.0", ...,
/// "model.norm"; the projection is "lm_head". Takes i32 [batch, time]. Initial weights as gpt2().
TROUPE_API Model llama(const LlamaConfig& config);

struct MlpConfig {
  std::int64_t in = 784;
  std::vector<std::int64_t> hidden = {256, 256};
  std::int64_t classes = 10;
};
/// A classifier of dense layers with ReLU: "layers.0", "layers.1", ... Takes [batch, in].
TROUPE_API Model mlp(const MlpConfig& config);

struct CnnConfig {
  std::int64_t channels = 1, height = 28, width = 28;
  std::int64_t first = 6, second = 16;  ///< channels of the two convolutions
  std::int64_t kernel = 5, padding = 2;
  std::int64_t hidden = 120;
  std::int64_t classes = 10;
};
/// A classifier like LeNet-5 (LeCun et al. 1998) with ReLU and max pooling: conv1, pool1, conv2,
/// pool2, flatten, fc1, fc2. Takes [batch, channels, height, width].
TROUPE_API Model cnn(const CnnConfig& config);

}  // namespace troupe::train::models
