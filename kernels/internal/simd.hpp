/// Helpers for the loops of CPU kernels: TROUPE_KERNEL compiles one function for several vector
/// widths, sum() adds in a fixed order of 16 lanes, and exp() has no branch and vectorises.
///
///     TROUPE_KERNEL void twice(float* x, std::int64_t n) { for (...) x[i] *= 2; }
///
/// Results have the same bits at every vector width, since CMakeLists.txt turns fused multiply-add
/// off and the compiler may not reassociate sums (KERN-3).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TROUPE_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TROUPE_SANITIZED 1
#endif
#endif

// The loader chooses the clone before a sanitizer is initialised, so that instrumented builds have
// only one.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(TROUPE_SANITIZED)
#define TROUPE_KERNEL __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TROUPE_KERNEL
#endif
#define TROUPE_INLINE inline __attribute__((always_inline))

namespace troupe::kernels::internal {

/// Lanes of every reduction. It is a constant, so that sums have the same order on all machines.
inline constexpr std::int64_t kLanes = 16;

/// Adds the lanes pairwise: ((0+8)+(4+12))+... .
template <class T>
TROUPE_INLINE T sum_lanes(T* lane) {
  for (std::int64_t width = kLanes / 2; width > 0; width /= 2)
    for (std::int64_t j = 0; j < width; ++j) lane[j] += lane[j + width];
  return lane[0];
}

/// Returns the sum of f(i) for i in [0, n). Lane i mod 16 takes element i.
template <class T, class F>
TROUPE_INLINE T sum(std::int64_t n, F f) {
  T lane[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (std::int64_t j = 0; j < kLanes; ++j) lane[j] += f(i + j);
  for (std::int64_t j = 0; i + j < n; ++j) lane[j] += f(i + j);
  return sum_lanes(lane);
}

/// Returns the largest of n > 0 values. Ignores a NaN among the values after the first.
TROUPE_INLINE float maximum(const float* x, std::int64_t n) {
  using Wide = float __attribute__((vector_size(64)));  // kLanes floats, in a register
  float top = x[0];
  std::int64_t i = 0;
  if (n >= kLanes) {
    Wide lanes;
    __builtin_memcpy(&lanes, x, sizeof lanes);
    for (i = kLanes; i + kLanes <= n; i += kLanes) {
      Wide next;
      __builtin_memcpy(&next, x + i, sizeof next);
      lanes = next > lanes ? next : lanes;
    }
    for (std::int64_t j = 0; j < kLanes; ++j) top = lanes[j] > top ? lanes[j] : top;
  }
  for (; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

/// The same for doubles.
TROUPE_INLINE double maximum(const double* x, std::int64_t n) {
  double top = x[0];
  for (std::int64_t i = 1; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

/// Returns e^x to about 2 ulp for x in [-88, 88], 0 from -88 to -87.7, and NaN for NaN. Outside
/// [-88, 88] the result is undefined. Source: Cephes expf, with a Cody-Waite reduction
/// (x = n * ln 2 + r) and a polynomial of degree 5 in r.
TROUPE_INLINE float exp_in_range(float x) {
  // Adding 1.5 * 2^23 rounds to a whole number and leaves it in the low bits of the mantissa.
  const float magic = 12582912.0f;
  const float shifted = x * 1.44269504088896341f + magic;
  const float n = shifted - magic;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float mantissa = (p * (r * r) + r) + 1.0f;
  // 2^n: n, read from those low bits, goes into the exponent.
  const std::uint32_t power =
      (std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(magic) + 127u) << 23;
  return mantissa * std::bit_cast<float>(power);
}
TROUPE_INLINE double exp_in_range(double x) {
  return std::exp(x);
}

/// Returns e^x for x <= 88: 0 below -87.7, and NaN for NaN.
TROUPE_INLINE float exp_below(float x) {
  return exp_in_range(x < -88.0f ? -88.0f : x);  // at -88, n is -127 and the bits of 2^n are 0
}
TROUPE_INLINE double exp_below(double x) {
  return std::exp(x);
}

/// Returns e^x: e^88 above 88, 0 below -87.7, and NaN for NaN.
TROUPE_INLINE float exp(float x) {
  return exp_below(x > 88.0f ? 88.0f : x);
}
TROUPE_INLINE double exp(double x) {
  return std::exp(x);
}

}  // namespace troupe::kernels::internal
