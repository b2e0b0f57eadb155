/// A 64-bit hash of bytes, to check that ranks and copies hold the same weights.
///
///     w.report({.step = n, .loss = l,
///               .extra = {{"weights", double(hash_floats(m.parameters()) >> 11)}}});
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe::train {

/// XXH64 of bytes that come in pieces.
///
///     HashStream hash;
///     hash.add(first.data(), first.size());
///     hash.add(second.data(), second.size());
///     hash.value();                            // hash_bytes() of both together
class TROUPE_API HashStream {
 public:
  HashStream() noexcept;
  void add(const void* data, std::size_t size) noexcept;
  /// Returns the hash of all bytes so far.
  std::uint64_t value() const noexcept;

 private:
  static constexpr std::size_t kBlock = 32;
  std::uint64_t states_[4];
  unsigned char open_[kBlock] = {};  // bytes of a block that is not full
  std::uint64_t size_ = 0;
};

/// Returns XXH64 with seed 0 (Collet 2012), the value that the xxhash tools print. Not for
/// security.
TROUPE_API std::uint64_t hash_bytes(const void* data, std::size_t size) noexcept;

inline std::uint64_t hash_floats(std::span<const float> values) noexcept {
  return hash_bytes(values.data(), values.size_bytes());
}

}  // namespace troupe::train
