/// Secret: bytes that wipe themselves, are never copied by accident, and are compared in constant
/// time.
///
///     Secret<32> key = ...;
///     Secret<32> other = key.copy();     // explicit
///     if (key == other) ...              // the time depends on the size alone
#pragma once

#include <array>
#include <cstddef>
#include <cstring>

namespace troupe {

/// Compares two ranges in a time that depends on their size alone.
inline bool equal_in_constant_time(const void* a, const void* b, std::size_t size) noexcept {
  const auto* const left = static_cast<const volatile unsigned char*>(a);
  const auto* const right = static_cast<const volatile unsigned char*>(b);
  unsigned difference = 0;
  for (std::size_t i = 0; i < size; ++i) {
    const unsigned x = left[i], y = right[i];
    difference |= x ^ y;
  }
  return difference == 0;
}

/// Overwrites memory in a way that the compiler cannot remove.
inline void wipe(void* data, std::size_t size) noexcept {
  if (size > 0) ::explicit_bzero(data, size);
}

/// N secret bytes; move-only, wiped when moved from and when destroyed.
template <std::size_t N>
class Secret {
 public:
  Secret() noexcept = default;
  Secret(Secret&& other) noexcept : bytes_(other.bytes_) { other.clear(); }
  Secret& operator=(Secret&& other) noexcept {
    if (this != &other) {
      bytes_ = other.bytes_;
      other.clear();
    }
    return *this;
  }
  ~Secret() { clear(); }

  std::byte* data() noexcept { return bytes_.data(); }
  const std::byte* data() const noexcept { return bytes_.data(); }
  static constexpr std::size_t size() noexcept { return N; }
  /// Makes an explicit copy, for the rare case that needs one.
  Secret copy() const noexcept {
    Secret other;
    other.bytes_ = bytes_;
    return other;
  }
  void clear() noexcept { wipe(bytes_.data(), N); }
  friend bool operator==(const Secret& a, const Secret& b) noexcept {
    return equal_in_constant_time(a.data(), b.data(), N);
  }

 private:
  std::array<std::byte, N> bytes_{};
};

}  // namespace troupe
