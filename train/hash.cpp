#include "troupe/train/hash.hpp"

#include <bit>
#include <cstring>

namespace troupe::train {
namespace {

constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87ULL, kPrime2 = 0xC2B2AE3D27D4EB4FULL,
                        kPrime3 = 0x165667B19E3779F9ULL, kPrime4 = 0x85EBCA77C2B2AE63ULL,
                        kPrime5 = 0x27D4EB2F165667C5ULL;

template <class T>
T load(const unsigned char* p) noexcept {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

std::uint64_t round(std::uint64_t state, std::uint64_t input) noexcept {
  return std::rotl(state + input * kPrime2, 31) * kPrime1;
}

std::uint64_t merge(std::uint64_t hash, std::uint64_t state) noexcept {
  return (hash ^ round(0, state)) * kPrime1 + kPrime4;
}

}  // namespace

std::uint64_t hash_bytes(const void* data, std::size_t size) noexcept {
  const auto* p = static_cast<const unsigned char*>(data);
  std::size_t left = size;
  std::uint64_t hash = kPrime5;
  if (size >= 32) {
    std::uint64_t s[4] = {kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1};
    for (; left >= 32; left -= 32, p += 32)
      for (std::size_t i = 0; i < 4; ++i) s[i] = round(s[i], load<std::uint64_t>(p + 8 * i));
    hash = std::rotl(s[0], 1) + std::rotl(s[1], 7) + std::rotl(s[2], 12) + std::rotl(s[3], 18);
    for (const std::uint64_t state : s) hash = merge(hash, state);
  }
  hash += size;
  for (; left >= 8; left -= 8, p += 8)
    hash = std::rotl(hash ^ round(0, load<std::uint64_t>(p)), 27) * kPrime1 + kPrime4;
  if (left >= 4) {
    hash = std::rotl(hash ^ (load<std::uint32_t>(p) * kPrime1), 23) * kPrime2 + kPrime3;
    p += 4;
    left -= 4;
  }
  for (; left > 0; --left, ++p) hash = std::rotl(hash ^ (*p * kPrime5), 11) * kPrime1;
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

}  // namespace troupe::train
