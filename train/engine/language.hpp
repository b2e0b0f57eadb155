/// Held-out loss and text generation with an engine whose model reads bytes.
///
///     double loss = held_out_loss(engine, data, /*max_windows=*/64);
///     std::cout << generate(engine, "#include <", 300, {.context = 64});
///
/// The model is causal. Its vocabulary has 256 to 512 tokens, of which the first 256 are the
/// bytes. The others are padding and special tokens.
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

/// Why a generation ended.
enum class GenerationEnd : std::uint8_t {
  count,    ///< it has as many bytes as were asked for
  context,  ///< the model takes no longer text
};

/// A continuation: a string that also says why it ended.
struct Generated : std::string {
  GenerationEnd end = GenerationEnd::count;
  std::string why = {};  ///< a sentence; empty with GenerationEnd::count
};

/// Returns a continuation of the prompt by `count` bytes, or by fewer when the model takes no
/// longer text: GenerateOptions::context goes on with the last tokens. Draws bytes only, even if
/// the vocabulary has more tokens. An empty prompt counts as a newline. The result is a function
/// of weights, prompt and options. The ranks that must call predict() make the same call. Throws
/// InvalidArgument, one sentence, for a vocabulary that is not one of bytes and for a prompt that
/// is too long for the model, and like predict(). Costs one prediction of `context` tokens for
/// each byte.
TROUPE_API Generated generate(Engine& engine, const std::string& prompt, int count,
                              const GenerateOptions& options = {});

}  // namespace troupe::train
