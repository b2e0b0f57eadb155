#include "troupe/kernels/philox/philox.hpp"

#include <cmath>

namespace troupe::kernels {

void philox_normal(float* out, std::int64_t n, std::uint64_t seed, std::uint64_t stream,
                   std::uint64_t first, float mean, float deviation) {
  constexpr double kTwoPi = 6.283185307179586;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint64_t index = first + static_cast<std::uint64_t>(i);
    const std::uint64_t pair = index & ~std::uint64_t{1};
    const double u = (philox_bits(seed, stream, pair) + 0.5) * 0x1.0p-32;  // never 0
    const double angle = kTwoPi * (philox_bits(seed, stream, pair + 1) * 0x1.0p-32);
    const double radius = std::sqrt(-2.0 * std::log(u));
    const double value = radius * (index & 1 ? std::sin(angle) : std::cos(angle));
    out[i] = mean + deviation * static_cast<float>(value);
  }
}

}  // namespace troupe::kernels
