/// The arithmetic of reductions: out[i] = the reduction of parts[0][i], parts[1][i], …, in that
/// order. The order is what makes the bits equal on all ranks (COLL-2).
#pragma once

#include "troupe/actors/collective/communicator.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::collective::internal {

/// Reduces `count` elements of `type`. Neither `out` nor the parts need to be aligned. `out` may be
/// one of the parts.
void reduce_parts(DType type, Reduce reduce, std::byte* out,
                  const std::vector<const std::byte*>& parts, std::uint64_t count);

}  // namespace troupe::collective::internal
