#include "troupe/runtime/base/random_bytes.hpp"

#include <sys/random.h>

#include <array>
#include <cerrno>

namespace troupe {

bool try_fill_random(std::span<std::byte> bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t n = ::getrandom(bytes.data(), bytes.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

void fill_random(std::span<std::byte> bytes) {
  if (!try_fill_random(bytes))
    throw Unavailable(Code::unavailable, "the system gives no random numbers");
}

std::string random_id() {
  std::array<std::byte, 16> bytes{};
  fill_random(bytes);
  std::string id;
  for (const std::byte byte : bytes) {
    const auto b = std::to_integer<unsigned>(byte);
    id += "0123456789abcdef"[b >> 4];
    id += "0123456789abcdef"[b & 15];
  }
  return id;
}

}  // namespace troupe
