#include "troupe/kernels/philox/philox.hpp"
#include "troupe/train/gpt.hpp"
#include "troupe/train/internal/reject.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::train {
namespace {

constexpr std::size_t kBytes = 256;

/// The k-th largest of the logits, or minus infinity for all.
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

}  // namespace

std::string generate(Gpt& model, const std::string& prompt, int count,
                     const GenerateOptions& options) {
  internal::require(model.config().vocabulary >= static_cast<std::int64_t>(kBytes),
                    "generate needs a model of bytes: a vocabulary of at least 256");
  std::vector<std::int32_t> tokens;
  for (const char c : prompt.empty() ? std::string("\n") : prompt)
    tokens.push_back(static_cast<unsigned char>(c));
  std::string text;
  for (int i = 0; i < count; ++i) {
    const double uniform = kernels::philox_uniform(options.seed, 0, static_cast<std::uint64_t>(i));
    const std::size_t next = draw(model.next_logits(tokens).first(kBytes), options, uniform);
    tokens.push_back(static_cast<std::int32_t>(next));
    text.push_back(static_cast<char>(next));
  }
  return text;
}

double held_out_loss(Gpt& model, const TextDataset& data, std::uint64_t max_windows) {
  constexpr std::uint64_t rows = 16;
  const std::uint64_t all = data.held_out_size(), count = std::min(max_windows, all);
  LossSum total;
  for (std::uint64_t first = 0; first < count; first += rows) {
    std::vector<std::uint64_t> indices;
    for (std::uint64_t i = first; i < std::min(first + rows, count); ++i)
      indices.push_back(i * all / count);
    const LossSum part = model.loss_sum(data.held_out(indices));
    total = {total.sum + part.sum, total.count + part.count};
  }
  return total.mean();
}

}  // namespace troupe::train
