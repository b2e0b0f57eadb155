/// The pieces of a global norm.
///
///     double norm = std::sqrt(sum_of_squares(gradients, n));
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <cstdint>

namespace troupe::kernels {

/// Sum of x[i]^2 in double precision, in a fixed order of 16 lanes: exact to about 1e-15 relative.
/// Not finite when an element is not.
TROUPE_API double sum_of_squares(const float* x, std::int64_t n);

}  // namespace troupe::kernels
