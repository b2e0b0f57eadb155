#include "troupe/train/engine/language.hpp"

#include "troupe/kernels/philox/philox.hpp"
#include "troupe/train/engine/micro_batches.hpp"
#include "troupe/train/internal/reject.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace troupe::train {
namespace {

constexpr std::int64_t kBytes = 256;
/// The largest vocabulary that still counts as one of bytes, with padding and special tokens. In a
/// larger one the first 256 ids are parts of words.
constexpr std::int64_t kMostTokens = 512;

/// Returns the k-th largest of the logits, or minus infinity when all count.
float threshold(std::span<const float> logits, int top_k) {
  if (top_k <= 0 || static_cast<std::size_t>(top_k) >= logits.size()) return -INFINITY;
  std::vector<float> sorted(logits.begin(), logits.end());
  std::nth_element(sorted.begin(), sorted.begin() + (top_k - 1), sorted.end(),
                   std::greater<float>());
  return sorted[static_cast<std::size_t>(top_k - 1)];
}

std::size_t draw(std::span<const float> logits, const GenerateOptions& options, double uniform) {
  const auto top = std::max_element(logits.begin(), logits.end());
  if (!(options.temperature > 0)) return static_cast<std::size_t>(top - logits.begin());
  const float bar = threshold(logits, options.top_k);
  std::vector<double> weights(logits.size());
  double total = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] < bar) continue;
    weights[i] = std::exp(static_cast<double>(logits[i] - *top) / options.temperature);
    total += weights[i];
  }
  double left = uniform * total;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0 && weights[i] > 0) return i;
  }
  return static_cast<std::size_t>(top - logits.begin());
}

/// Returns the logits that the model would give for so many tokens. Throws InvalidArgument when it
/// does not take them.
Spec prediction_of(const Engine& engine, std::int64_t time) {
  Spec x{DType::i32, {1, time}};
  for (const auto& layer : engine.model())
    x = (layer->is_loss() ? layer->prediction_need(x, engine.layout())
                          : layer->need(x, engine.layout()))
            .out;
  return x;
}

/// Throws unless the first tokens of the vocabulary are the bytes.
void require_bytes(const Spec& prediction) {
  const std::int64_t vocabulary = prediction.shape[prediction.shape.rank() - 1];
  if (vocabulary < kBytes || vocabulary > kMostTokens)
    internal::reject(
        "generate() needs a model of bytes, with a vocabulary of 256 to 512 tokens, "
        "and this model has " +
        std::to_string(vocabulary) +
        ": encode the text with the model's tokenizer and call predict()");
  internal::require(prediction.type == DType::f32, "generate() takes logits in f32");
}

/// Returns why the model takes no text of so many tokens; empty if it takes it.
std::string refusal_of(const Engine& engine, std::size_t tokens) {
  try {
    static_cast<void>(prediction_of(engine, static_cast<std::int64_t>(tokens)));
    return {};
  } catch (const InvalidArgument& refusal) {
    return refusal.message();
  }
}

/// Returns the logits of the 256 bytes as the token after these.
std::vector<float> next_bytes(Engine& engine, std::span<std::int32_t> tokens) {
  const auto time = static_cast<std::int64_t>(tokens.size());
  const TensorView all = engine.predict({tokens.data(), DType::i32, {1, time}});
  const std::int64_t vocabulary = all.columns();
  std::vector<float> bytes(kBytes);
  kernels::Device& device = engine.device();
  device.copy(device.compute(), bytes.data(), all.as<float>() + (time - 1) * vocabulary,
              bytes.size() * sizeof(float));
  device.compute().synchronize();
  return bytes;
}

}  // namespace

double held_out_loss(Engine& engine, const TextDataset& data, std::uint64_t max_windows) {
  constexpr std::uint64_t kRows = 16;
  const auto ranks = static_cast<std::uint64_t>(engine.layout().dp),
             rank = static_cast<std::uint64_t>(engine.mesh().dp_rank);
  const std::uint64_t all = data.held_out_size(), count = std::min(max_windows, all),
                      end = count * (rank + 1) / ranks;
  std::vector<Batch> batches;
  for (std::uint64_t first = count * rank / ranks; first < end; first += kRows) {
    std::vector<std::uint64_t> windows;
    for (std::uint64_t i = first; i < std::min(first + kRows, end); ++i)
      windows.push_back(i * all / count);
    batches.push_back(data.held_out(windows));
  }
  std::vector<MicroBatch> micros;
  for (Batch& batch : batches) micros.push_back(micro_batches(batch, 1).front());
  return engine.evaluate(micros);
}

Generated generate(Engine& engine, const std::string& prompt, int count,
                   const GenerateOptions& options) {
  std::vector<std::int32_t> tokens;
  for (const char c : prompt.empty() ? std::string("\n") : prompt)
    tokens.push_back(static_cast<unsigned char>(c));
  const auto most = options.context <= 0 ? SIZE_MAX : static_cast<std::size_t>(options.context);
  require_bytes(prediction_of(engine, static_cast<std::int64_t>(std::min(tokens.size(), most))));
  Generated text;
  for (int i = 0; i < count; ++i) {
    const auto seen = std::span(tokens).last(std::min(tokens.size(), most));
    text.why = refusal_of(engine, seen.size());
    if (!text.why.empty()) {
      text.end = GenerationEnd::context;
      break;
    }
    const double uniform = kernels::philox_uniform(options.seed, 0, static_cast<std::uint64_t>(i));
    const std::size_t next = draw(next_bytes(engine, seen), options, uniform);
    tokens.push_back(static_cast<std::int32_t>(next));
    text.push_back(static_cast<char>(next));
  }
  return text;
}

}  // namespace troupe::train
