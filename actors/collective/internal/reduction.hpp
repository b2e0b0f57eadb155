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

// A reduction in several steps, whose bits are those of reduce_parts() over all parts.

/// Returns the bytes of an element between two steps. 16-bit numbers are f32 there.
std::uint64_t running_bytes(DType type) noexcept;
/// Makes one step: running[i] = the reduction of before[i], parts[0][i], …; a mean is not divided
/// yet. Null for `before` begins a reduction. `running` may be `before`.
void reduce_running(DType type, Reduce reduce, std::byte* running, const std::byte* before,
                    const std::vector<const std::byte*>& parts, std::uint64_t count);
/// Makes the last step of a reduction over `ranks` parts in all, with results of `type`. `out` may
/// be one of the parts.
void reduce_last(DType type, Reduce reduce, std::byte* out, const std::byte* before,
                 const std::vector<const std::byte*>& parts, std::uint64_t count, int ranks);

}  // namespace troupe::collective::internal
