/// The table of operations that CPU devices use.
#pragma once

#include "troupe/kernels/device/operations.hpp"

namespace troupe::kernels::internal {

const Kernels& cpu_kernels() noexcept;

}  // namespace troupe::kernels::internal
