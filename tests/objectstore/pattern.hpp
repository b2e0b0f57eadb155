/// Bytes that depend on their place and on a seed.
#pragma once

#include "troupe/runtime/base/units.hpp"

#include <cstdint>

namespace troupe::objectstore {

inline Blob pattern(std::size_t size, unsigned seed) {
  Blob bytes(size);
  std::uint64_t x = seed * 2654435761u + 1;
  for (std::byte& b : bytes) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    b = static_cast<std::byte>(x >> 56);
  }
  return bytes;
}

}  // namespace troupe::objectstore
