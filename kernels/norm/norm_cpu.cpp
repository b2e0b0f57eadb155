#include "troupe/kernels/norm/norm.hpp"

#include "troupe/kernels/internal/simd.hpp"

namespace troupe::kernels {

TROUPE_KERNEL double sum_of_squares(const float* x, std::int64_t n) {
  return internal::sum<double>(n, [=](std::int64_t i) {
    const double value = x[i];
    return value * value;
  });
}

}  // namespace troupe::kernels
