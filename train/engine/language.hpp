/// Held-out loss and text generation with an engine whose model reads bytes.
///
///     double loss = held_out_loss(engine, data, /*max_windows=*/64);
///     std::cout << generate(engine, "#include <", 300, {.context = 64});
///
/// The model is causal. Its vocabulary has at least 256 tokens, of which the first 256 are the
/// bytes.
#pragma once

#include "troupe/train/engine/engine.hpp"
#include "troupe/train/text.hpp"

#include <cstdint>
#include <string>

namespace troupe::train {

/// Returns the mean loss over at most max_windows of the dataset's held-out windows, evenly
/// spread. Data-parallel ranks share the windows. Every rank calls it and gets the result. Throws
/// like Engine::evaluate().
TROUPE_API double held_out_loss(Engine& engine, const TextDataset& data, std::uint64_t max_windows);

struct GenerateOptions {
  std::int64_t context = 0;  ///< most tokens that the model sees; 0: no limit
  float temperature = 0.8f;  ///< 0: always the likeliest token
  int top_k = 0;             ///< sample among the k likeliest bytes only; 0: all
  std::uint64_t seed = 0;
};

/// Returns a continuation of the prompt by `count` bytes. Draws bytes only, even if the
/// vocabulary has more tokens. An empty prompt counts as a newline. The result is a function of
/// weights, prompt and options. The ranks that must call predict() make the same call. Throws
/// InvalidArgument for a vocabulary below 256, and like predict(). Costs one prediction of
/// `context` tokens for each byte.
TROUPE_API std::string generate(Engine& engine, const std::string& prompt, int count,
                                const GenerateOptions& options = {});

}  // namespace troupe::train
