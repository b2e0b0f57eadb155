#include "troupe/tune/study/checkpoint_save.hpp"

#include <cstddef>

namespace troupe::tune {

std::string hash_text(std::uint64_t hash) {
  std::string text(16, '0');
  for (std::size_t i = 16; i-- > 0; hash >>= 4) text[i] = "0123456789abcdef"[hash & 15];
  return text;
}

std::string why_not_all_fit(std::uint64_t bytes_of_one, std::uint64_t trials,
                            std::uint64_t free_bytes) {
  // Two files of each trial, and the best.
  const double needed = static_cast<double>(bytes_of_one) * (2.0 * static_cast<double>(trials) + 1);
  if (needed <= static_cast<double>(free_bytes)) return {};
  const auto mib = [](double bytes) {
    return std::to_string(static_cast<std::uint64_t>(bytes / 1048576)) + " MiB";
  };
  return "the checkpoints of " + std::to_string(trials) + " trials need " + mib(needed) + ", and " +
         mib(static_cast<double>(free_bytes)) +
         " are free: raise save_every, run fewer trials at a time, or make room";
}

}  // namespace troupe::tune
