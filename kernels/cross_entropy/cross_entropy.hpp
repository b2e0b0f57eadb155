/// What a target says of its row in a cross entropy.
///
///     targets[r] = kIgnore;  // loss 0, gradient 0
#pragma once

#include <cstdint>

namespace troupe::kernels {

/// The target of a row that does not count. Every other one is a class (the caller checks).
inline constexpr std::int32_t kIgnore = -1;

}  // namespace troupe::kernels
