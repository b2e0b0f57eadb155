/// Arithmetic of sizes with overflow checks.
#pragma once

#include "troupe/train/internal/reject.hpp"

#include <cstdint>
#include <string>

namespace troupe::train::internal {

/// Rounds up to the next multiple.
constexpr std::int64_t round_up(std::int64_t size, std::int64_t multiple) noexcept {
  return (size + multiple - 1) / multiple * multiple;
}

/// More than any machine has. The sum of a few such sizes still fits in 64 bits.
inline constexpr std::int64_t kMostBytes = std::int64_t{1} << 58;

/// A function of its own, because g++ 12 warns falsely about a literal joined to a string in a
/// loop.
[[noreturn, gnu::noinline, gnu::cold]] inline void reject_size(const char* what, const char* why) {
  reject(std::string(what).append(why));
}

/// Returns `have` plus `bytes` rounded up to a multiple. All arguments are at least 0. Rejects
/// sums above kMostBytes.
inline std::int64_t add_rounded(std::int64_t have, std::int64_t bytes, std::int64_t multiple,
                                const char* what) {
  if (bytes > kMostBytes || have > kMostBytes - round_up(bytes, multiple))
    reject_size(what, " takes more than 2^58 bytes: use a smaller batch, context or model");
  return have + round_up(bytes, multiple);
}

/// Returns have + a * b. All arguments are at least 0. Rejects a result that overflows 64 bits.
inline std::int64_t add_product(std::int64_t have, std::int64_t a, std::int64_t b,
                                const char* what) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || __builtin_add_overflow(have, product, &have))
    reject_size(what,
                " is no 64-bit number: use fewer ranks, fewer micro-batches or a smaller model");
  return have;
}

}  // namespace troupe::train::internal
