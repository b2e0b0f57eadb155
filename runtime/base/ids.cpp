#include "troupe/runtime/base/ids.hpp"

#include "troupe/runtime/base/random_bytes.hpp"

#include <span>

namespace troupe::detail {

void random_id(std::uint64_t& high, std::uint64_t& low) {
  std::uint64_t words[2] = {};
  do fill_random(std::as_writable_bytes(std::span(words)));
  while ((words[0] | words[1]) == 0);
  high = words[0];
  low = words[1];
}

std::string id_to_string(std::uint64_t high, std::uint64_t low) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text(32, '0');
  for (int i = 0; i < 16; ++i) {
    text[static_cast<std::size_t>(15 - i)] = kDigits[(high >> (4 * i)) & 15];
    text[static_cast<std::size_t>(31 - i)] = kDigits[(low >> (4 * i)) & 15];
  }
  return text;
}

bool id_from_string(std::string_view text, std::uint64_t& high, std::uint64_t& low) {
  if (text.size() != 32) return false;
  std::uint64_t words[2] = {};
  for (std::size_t i = 0; i < 32; ++i) {
    const char c = text[i];
    int digit = 0;
    if (c >= '0' && c <= '9') {
      digit = c - '0';
    } else if (c >= 'a' && c <= 'f') {
      digit = c - 'a' + 10;
    } else {
      return false;
    }
    words[i / 16] = (words[i / 16] << 4) | static_cast<std::uint64_t>(digit);
  }
  high = words[0];
  low = words[1];
  return true;
}

}  // namespace troupe::detail
