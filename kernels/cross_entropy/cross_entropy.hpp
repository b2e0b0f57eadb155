/// The target value of rows that a cross entropy ignores.
///
///     targets[r] = kIgnore;  // loss 0, gradient 0
#pragma once

#include <cstdint>

namespace troupe::kernels {

/// The target of an ignored row. Every other target must be a class; the caller checks that.
inline constexpr std::int32_t kIgnore = -1;

}  // namespace troupe::kernels
