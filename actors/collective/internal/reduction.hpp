/// out[i] = what `reduce` makes of parts[0][i], parts[1][i], …, in that order.
#pragma once

#include "troupe/actors/collective/communicator.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::collective::internal {

/// Elements of `type`; neither out nor the parts need to be aligned. out may be one of the parts.
void reduce_parts(DType type, Reduce reduce, std::byte* out,
                  const std::vector<const std::byte*>& parts, std::uint64_t count);

}  // namespace troupe::collective::internal
