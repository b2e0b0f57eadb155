#include "troupe/runtime/base/random_bytes.hpp"

#include "troupe/runtime/base/ids.hpp"

#include <sys/random.h>

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
  std::uint64_t high = 0, low = 0;
  detail::random_id(high, low);
  return detail::id_to_string(high, low);
}

}  // namespace troupe
