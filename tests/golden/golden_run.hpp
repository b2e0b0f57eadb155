// The golden run: ten steps of a small GPT-2 that another framework made in float64. Its model,
// first weights, text, losses and norms are here alone.
//
//     Engine engine(golden::model(), layout, mesh, device, golden::optimizer());
//     engine.initialize(1);
//     engine.restore(golden::start(engine.snapshot()));
//     const golden::Text text(paths::golden());
//     golden::Share share = text.share(step, dp_rank, layout.dp, layout.micro);
//     engine.step(share.micros()).loss;                         // golden::kLosses[step]
#pragma once

#include "troupe/train/engine/engine.hpp"
#include "troupe/train/models/models.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace troupe::train::golden {

inline constexpr std::int64_t kRows = 4, kContext = 32, kParameters = 28576;
inline constexpr std::size_t kSteps = 10;
inline constexpr std::array<double, kSteps> kLosses = {
    4.220803823, 4.113694475, 4.091007400, 4.054562152, 4.003949513,
    3.980534472, 3.945649695, 3.927857272, 3.920189957, 3.870401837};
inline constexpr std::array<double, kSteps> kNorms = {
    1.688320960, 1.492466091, 1.339189807, 1.368430682, 1.248444063,
    1.346839603, 1.266600491, 1.215164812, 1.011948659, 1.155447739};

inline Model model() {
  return models::gpt2(
      {.vocabulary = 65, .context = kContext, .layers = 2, .heads = 2, .channels = 32});
}

/// AdamW with decay on all tensors, without a clip.
inline OptimizerOptions optimizer() {
  return {.rate = 1e-3f, .decay = 0.1f, .decay_all = true, .max_norm = 0};
}

/// Element of a tensor of the other framework, which counts tensors in the order of the layers.
inline double value(std::uint32_t tensor, std::uint32_t element) {
  std::uint32_t h = element * 2654435761u + tensor * 40503u + 12345u;
  h = (h ^ (h >> 15)) * 2246822519u;
  h ^= h >> 13;
  return (h / 4294967296.0 - 0.5) * 0.1;
}

/// Where the elements of a matrix of ours lie there: layers are stacked.
struct Place {
  std::uint32_t tensor = 0, layer = 0;
};
/// Throws std::invalid_argument for what is no matrix of the model.
inline Place place_of(const std::string& name) {
  if (name == "transformer.wte.weight") return {0, 0};
  if (name == "transformer.wpe.weight") return {1, 0};
  constexpr std::pair<const char*, std::uint32_t> matrices[] = {{".attn.c_attn.weight", 4},
                                                                {".attn.c_proj.weight", 6},
                                                                {".mlp.c_fc.weight", 10},
                                                                {".mlp.c_proj.weight", 12}};
  for (const auto& [ending, tensor] : matrices)
    if (name.ends_with(ending)) return {tensor, name.starts_with("transformer.h.1.") ? 1u : 0u};
  throw std::invalid_argument("the golden run has no matrix " + name);
}

/// The first weights in place of the engine's own; norms and biases begin as 1 and 0 anyway.
inline Snapshot start(Snapshot snapshot) {
  for (NamedTensor& tensor : snapshot.tensors) {
    if (tensor.shape.size() < 2 || tensor.name.starts_with("optimizer.")) continue;
    const Place place = place_of(tensor.name);
    const auto count = static_cast<std::uint32_t>(tensor.bytes.size() / sizeof(float));
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto element = static_cast<float>(value(place.tensor, place.layer * count + i));
      std::memcpy(tensor.bytes.data() + i * sizeof(float), &element, sizeof element);
    }
  }
  return snapshot;
}

/// What a rank takes of a step; owns the memory of its micro-batches.
class Share {
 public:
  void add(const std::vector<std::int32_t>& ids, std::int64_t first, std::int64_t rows) {
    const auto from = ids.begin() + first;
    inputs_.emplace_back(from, from + rows * kContext);
    targets_.emplace_back(from + 1, from + rows * kContext + 1);
  }
  std::vector<MicroBatch> micros() {
    std::vector<MicroBatch> all;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const Shape shape{static_cast<std::int64_t>(inputs_[i].size()) / kContext, kContext};
      all.push_back({.input = {inputs_[i].data(), DType::i32, shape},
                     .targets = {targets_[i].data(), DType::i32, shape}});
    }
    return all;
  }

 private:
  std::vector<std::vector<std::int32_t>> inputs_, targets_;
};

/// The text's characters as numbers: their places among the 65 sorted ones.
class Text {
 public:
  /// `folder` holds the two files. Throws std::runtime_error when the text is not theirs.
  explicit Text(const std::string& folder) {
    const std::string alphabet = read(folder + "/tinyshakespeare-65.txt");
    for (const char c : read(folder + "/tinyshakespeare-1281.txt"))
      ids_.push_back(static_cast<std::int32_t>(alphabet.find(c)));
    if (alphabet.size() != 65 || ids_.size() != kSteps * kRows * kContext + 1)
      throw std::runtime_error("the golden text is not in " + folder);
  }
  const std::vector<std::int32_t>& ids() const noexcept { return ids_; }

  /// The consecutive rows of rank `dp_rank` of `dp`, in `micro` parts.
  Share share(std::size_t step, int dp_rank, int dp, int micro) const {
    Share share;
    const std::int64_t rows = kRows / dp;
    for (int i = 0; i < micro; ++i) {
      const std::int64_t first = rows * i / micro, end = rows * (i + 1) / micro;
      share.add(ids_, (kRows * static_cast<std::int64_t>(step) + rows * dp_rank + first) * kContext,
                end - first);
    }
    return share;
  }

 private:
  static std::string read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::vector<std::int32_t> ids_;
};

}  // namespace troupe::train::golden
