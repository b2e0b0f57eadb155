/// Sizes and durations that carry their unit in the type.
///
///     using namespace troupe::literals;
///     troupe::Bytes quota = 64_MiB;
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

/// A span of monotonic time. Zero in an option means "no limit" unless the option says otherwise.
using Duration = std::chrono::nanoseconds;

/// A size in bytes.
struct Bytes {
  std::uint64_t count = 0;
  friend constexpr auto operator<=>(Bytes, Bytes) = default;
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return {a.count + b.count}; }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return {a.count - b.count}; }
  friend constexpr Bytes operator*(Bytes a, std::uint64_t k) { return {a.count * k}; }
};

inline namespace literals {
constexpr Bytes operator""_B(unsigned long long n) {
  return {n};
}
constexpr Bytes operator""_KiB(unsigned long long n) {
  return {n << 10};
}
constexpr Bytes operator""_MiB(unsigned long long n) {
  return {n << 20};
}
constexpr Bytes operator""_GiB(unsigned long long n) {
  return {n << 30};
}
}  // namespace literals

/// Owned bytes without a type, and a view of bytes.
using Blob = std::vector<std::byte>;
using BlobView = std::span<const std::byte>;

}  // namespace troupe
