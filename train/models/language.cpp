#include "troupe/train/internal/reject.hpp"
#include "troupe/train/layers/embedding.hpp"
#include "troupe/train/layers/head.hpp"
#include "troupe/train/layers/transformer.hpp"
#include "troupe/train/models/models.hpp"

#include <cmath>

namespace troupe::train::models {
namespace {

constexpr float kDeviation = 0.02f;

float residual_deviation(std::int64_t layers) {
  if (layers < 1) internal::reject("a language model needs at least one layer");
  return kDeviation / std::sqrt(2.0f * static_cast<float>(layers));
}

struct Preset {
  std::string_view name;
  Gpt2Config config;
};

Gpt2Config large(std::int64_t layers, std::int64_t heads, std::int64_t channels) {
  return {.layers = layers, .heads = heads, .channels = channels};
}

Gpt2Config characters(std::int64_t context, std::int64_t layers, std::int64_t channels) {
  return {.vocabulary = 65,
          .context = context,
          .layers = layers,
          .heads = layers,
          .channels = channels,
          .bias = false};
}

}  // namespace

Gpt2Config gpt2_preset(std::string_view name) {
  const Preset presets[] = {
      {"gpt2", large(12, 12, 768)},        {"gpt2-medium", large(24, 16, 1024)},
      {"gpt2-large", large(36, 20, 1280)}, {"gpt2-xl", large(48, 25, 1600)},
      {"char", characters(256, 6, 384)},   {"char-small", characters(64, 4, 128)}};
  std::string known;
  for (const Preset& preset : presets) {
    if (preset.name == name) return preset.config;
    known += (known.empty() ? "" : ", ") + std::string(preset.name);
  }
  internal::reject("there is no model " + std::string(name) + "; there are " + known);
}

Model gpt2(const Gpt2Config& c) {
  const layers::GptBlockConfig block{.channels = c.channels,
                                     .heads = c.heads,
                                     .bias = c.bias,
                                     .dropout = c.dropout,
                                     .deviation = kDeviation,
                                     .residual_deviation = residual_deviation(c.layers)};
  Model model;
  model.push_back(std::make_unique<layers::Embedding>(
      "transformer", layers::EmbeddingConfig{.vocabulary = c.vocabulary,
                                             .context = c.context,
                                             .channels = c.channels,
                                             .dropout = c.dropout,
                                             .deviation = kDeviation}));
  for (std::int64_t i = 0; i < c.layers; ++i)
    model.push_back(
        std::make_unique<layers::GptBlock>("transformer.h." + std::to_string(i), block));
  model.push_back(std::make_unique<layers::LmHead>(
      "transformer.ln_f", layers::LmHeadConfig{.vocabulary = c.vocabulary,
                                               .channels = c.channels,
                                               .bias = c.bias,
                                               .tied_to = c.tied ? "transformer.wte.weight" : "",
                                               .deviation = kDeviation}));
  return model;
}

Model llama(const LlamaConfig& c) {
  const layers::LlamaBlockConfig block{.channels = c.channels,
                                       .heads = c.heads,
                                       .kv_heads = c.kv_heads,
                                       .inner = c.inner,
                                       .rope_theta = c.rope_theta,
                                       .epsilon = c.epsilon,
                                       .deviation = kDeviation,
                                       .residual_deviation = residual_deviation(c.layers)};
  Model model;
  model.push_back(std::make_unique<layers::Embedding>(
      "model", layers::EmbeddingConfig{.vocabulary = c.vocabulary,
                                       .channels = c.channels,
                                       .deviation = kDeviation,
                                       .tokens = "embed_tokens"}));
  for (std::int64_t i = 0; i < c.layers; ++i)
    model.push_back(
        std::make_unique<layers::LlamaBlock>("model.layers." + std::to_string(i), block));
  model.push_back(std::make_unique<layers::LmHead>(
      "model.norm", layers::LmHeadConfig{.vocabulary = c.vocabulary,
                                         .channels = c.channels,
                                         .rms = true,
                                         .bias = false,
                                         .epsilon = c.epsilon,
                                         .tied_to = c.tied ? "model.embed_tokens.weight" : "",
                                         .deviation = kDeviation}));
  return model;
}

}  // namespace troupe::train::models
