/// Conversions between float and the bits of the two 16-bit floating-point types: bfloat16 (8 bits
/// of exponent, 7 of mantissa) and IEEE 754 binary16 (5 and 10).
///
///     std::uint16_t bits = to_bf16(1.005859375f);      // 0x3f81: to the nearest, ties to even
///     float value = from_f16(0x3c00);                  // 1
///
/// Infinities stay infinite, and a NaN stays a NaN. A number too large for binary16 becomes an
/// infinity. Subnormal numbers of binary16 are converted exactly, even while FlushDenormals is on.
#pragma once

#include <bit>
#include <cstdint>

namespace troupe::kernels {

inline float from_bf16(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t to_bf16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // A NaN: set a bit of the mantissa that stays, or truncation could make it an infinity.
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  // Rounds half to even: adds just below half of the last kept bit, and 1 more if that bit is odd.
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline float from_f16(std::uint16_t bits) noexcept {
  const std::uint32_t sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u)  // infinity or NaN
    return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  // Normal: moves the mantissa by 13 bits, and changes the exponent's bias from 15 to 127.
  if (magnitude >= 0x400u) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
  const float value = static_cast<float>(magnitude) * 0x1p-24f;  // subnormal, or zero
  return sign == 0 ? value : -value;
}

inline std::uint16_t to_f16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 2^16 and more
  std::uint32_t kept = 0, rest = 0, half = 0;
  if (magnitude >= 0x38800000u) {  // 2^-14 and more: a normal binary16, too
    kept = (magnitude - 0x38000000u) >> 13;
    rest = magnitude & 0x1fffu;
    half = 0x1000u;
  } else {
    const std::uint32_t exponent = magnitude >> 23;
    if (exponent < 102) return static_cast<std::uint16_t>(sign);  // below half of the least: 2^-25
    const std::uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u, shift = 126 - exponent;
    kept = mantissa >> shift;
    rest = mantissa & ((1u << shift) - 1);
    half = 1u << (shift - 1);
  }
  if (rest > half || (rest == half && (kept & 1u) != 0)) ++kept;  // may carry into the exponent
  return static_cast<std::uint16_t>(sign | kept);
}

}  // namespace troupe::kernels
