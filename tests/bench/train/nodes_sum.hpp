/// An all_reduce of two ranks, each on a node of its own, over loopback.
///
///     double seconds = NodesSum(16 << 20).measure(/*times=*/20);          // the median of one sum
#pragma once

#include "train/link_stream.hpp"

#include <cstddef>

namespace troupe::bench {

/// Throws std::runtime_error when a sum is wrong.
class NodesSum : public Exchange {
 public:
  explicit NodesSum(std::size_t bytes);
};

}  // namespace troupe::bench
