/// What an engine of a language model of bytes does with text.
///
///     double loss = held_out_loss(engine, data, /*max_windows=*/64);
///     std::cout << generate(engine, "#include <", 300, {.context = 64});
///
/// The model is causal, and its vocabulary has at least 256 tokens, of which the first are bytes.
#pragma once

#include "troupe/train/engine/engine.hpp"
#include "troupe/train/text.hpp"

#include <cstdint>
#include <string>

namespace troupe::train {

/// Mean loss over a dataset's held-out windows, evenly spread, at most max_windows of them; the
/// data-parallel ranks share them. Every rank calls it and has the result. Errors as evaluate().
TROUPE_API double held_out_loss(Engine& engine, const TextDataset& data, std::uint64_t max_windows);

struct GenerateOptions {
  std::int64_t context = 0;  ///< tokens that the model sees at most; 0: all that there are
  float temperature = 0.8f;  ///< 0: always the likeliest token
  int top_k = 0;             ///< sample among the k likeliest only; 0: all
  std::uint64_t seed = 0;
};

/// Continues a text of bytes by `count` bytes; returns the continuation. Bytes alone are drawn,
/// whatever else the vocabulary has. An empty prompt counts as a newline. Equal for equal weights,
/// prompt and options. The ranks that call predict() call it alike. Throws InvalidArgument for a
/// smaller vocabulary, or as predict(). Cost: a prediction of `context` tokens for each byte.
TROUPE_API std::string generate(Engine& engine, const std::string& prompt, int count,
                                const GenerateOptions& options = {});

}  // namespace troupe::train
