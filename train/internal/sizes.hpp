/// Arithmetic of sizes.
#pragma once

#include <cstdint>

namespace troupe::train::internal {

/// The next multiple.
constexpr std::int64_t round_up(std::int64_t size, std::int64_t multiple) noexcept {
  return (size + multiple - 1) / multiple * multiple;
}

}  // namespace troupe::train::internal
