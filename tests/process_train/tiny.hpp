/// A model and data that train a step within a millisecond.
#pragma once

#include "troupe/train/train.hpp"

#include <cstdint>
#include <span>

namespace tiny {

namespace train = troupe::train;

inline constexpr std::int64_t kContext = 8;

inline train::Model model() {
  return train::models::gpt2(
      {.vocabulary = 16, .context = kContext, .layers = 2, .heads = 2, .channels = 16});
}

struct Rows {
  std::uint64_t count = 64;
  std::uint64_t size() const { return count; }
  train::Batch batch(std::span<const std::uint64_t> indices) const {
    train::Batch batch{.inputs = {},
                       .targets = {},
                       .rows = static_cast<std::int64_t>(indices.size()),
                       .time = kContext};
    for (const std::uint64_t i : indices)
      for (std::uint64_t t = 0; t < kContext; ++t) {
        batch.inputs.push_back(static_cast<std::int32_t>((i + t * 5) % 16));
        batch.targets.push_back(static_cast<std::int32_t>((i + t * 5 + 5) % 16));
      }
    return batch;
  }
};

}  // namespace tiny
