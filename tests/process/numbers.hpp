/// Large values that any process can make from a seed, and whose sum it can check.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

using Numbers = std::vector<std::uint64_t>;

inline constexpr std::uint64_t kMiB = 1u << 20;

inline Numbers numbers(std::uint64_t seed, std::uint64_t bytes) {
  Numbers v(bytes / 8);
  std::iota(v.begin(), v.end(), seed << 32);
  return v;
}
inline std::uint64_t sum(const Numbers& v) {
  return std::accumulate(v.begin(), v.end(), std::uint64_t{0});
}
/// Computes sum(numbers(seed, bytes)) by its closed formula.
inline std::uint64_t sum_of_numbers(std::uint64_t seed, std::uint64_t bytes) {
  const std::uint64_t n = bytes / 8;
  return n * (seed << 32) + n * (n - 1) / 2;
}
