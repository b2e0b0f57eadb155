/// share_of(): which rank writes which tensor of a checkpoint.
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace troupe::train {

/// Returns the writing rank of each tensor. Every tensor stays whole. The shares of two ranks
/// differ by at most the largest tensor. A pure function: all ranks compute the same result.
/// Precondition: ranks >= 1.
TROUPE_API std::vector<int> share_of(std::span<const std::int64_t> bytes, int ranks);

}  // namespace troupe::train
