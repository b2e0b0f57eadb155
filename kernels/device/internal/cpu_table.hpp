/// The CPU's table of functions.
#pragma once

#include "troupe/kernels/device/operations.hpp"

namespace troupe::kernels::internal {

/// The CPU's functions.
const Kernels& cpu_kernels() noexcept;

}  // namespace troupe::kernels::internal
