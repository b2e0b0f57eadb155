/// Counter-based random numbers: Philox4x32-10 (Salmon et al. 2011). A number is a function of
/// (seed, stream, element index), so that a tensor has the same values however it is divided among
/// ranks, on CPUs and GPUs (KERN-7).
///
///     philox_normal(weights, n, seed, /*stream=*/tensor, /*first=*/0, 0.0f, 0.02f);
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <array>
#include <cstdint>

namespace troupe::kernels {

/// The bijection itself: 10 rounds over a 128-bit counter with a 64-bit key.
constexpr std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                                  std::array<std::uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// Returns the 32 bits of element `index` of `stream`: word index % 4 of block index / 4.
constexpr std::uint32_t philox_bits(std::uint64_t seed, std::uint64_t stream,
                                    std::uint64_t index) noexcept {
  const std::uint64_t block = index / 4;
  return philox4x32(
      {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
       static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)},
      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)})[index % 4];
}

/// Returns a uniform number in [0, 1), made of the top 24 bits.
constexpr float philox_uniform(std::uint64_t seed, std::uint64_t stream,
                               std::uint64_t index) noexcept {
  return static_cast<float>(philox_bits(seed, stream, index) >> 8) * 0x1.0p-24f;
}

/// Writes out[i] = mean + deviation * (the standard normal number of element first + i), by Box and
/// Muller (1958): elements 2k and 2k+1 are the cosine and the sine of one pair of uniform numbers.
TROUPE_API void philox_normal(float* out, std::int64_t n, std::uint64_t seed, std::uint64_t stream,
                              std::uint64_t first, float mean, float deviation);

}  // namespace troupe::kernels
