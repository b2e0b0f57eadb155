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

HashStream::HashStream() noexcept : states_{kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1} {}

void HashStream::add(const void* data, std::size_t size) noexcept {
  if (size == 0) return;
  const auto* p = static_cast<const unsigned char*>(data);
  const auto mix = [this](const unsigned char* block) {
    for (std::size_t i = 0; i < 4; ++i)
      states_[i] = round(states_[i], load<std::uint64_t>(block + 8 * i));
  };
  const std::size_t open = size_ % kBlock;
  size_ += size;
  if (open + size < kBlock) {
    std::memcpy(open_ + open, p, size);
    return;
  }
  if (open > 0) {
    const std::size_t missing = kBlock - open;
    std::memcpy(open_ + open, p, missing);
    mix(open_);
    p += missing;
    size -= missing;
  }
  for (; size >= kBlock; size -= kBlock, p += kBlock) mix(p);
  if (size > 0) std::memcpy(open_, p, size);
}

std::uint64_t HashStream::value() const noexcept {
  std::uint64_t hash = kPrime5;
  if (size_ >= kBlock) {
    hash = std::rotl(states_[0], 1) + std::rotl(states_[1], 7) + std::rotl(states_[2], 12) +
           std::rotl(states_[3], 18);
    for (const std::uint64_t state : states_) hash = merge(hash, state);
  }
  hash += size_;
  const unsigned char* p = open_;
  std::size_t left = size_ % kBlock;
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

std::uint64_t hash_bytes(const void* data, std::size_t size) noexcept {
  HashStream hash;
  hash.add(data, size);
  return hash.value();
}

}  // namespace troupe::train
