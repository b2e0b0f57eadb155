#include "troupe/train/checkpoint/folder/share.hpp"

#include <algorithm>
#include <numeric>

namespace troupe::train {

// The longest processing time first (Graham 1969): the next largest tensor goes to the rank with
// the smallest share.
std::vector<int> share_of(std::span<const std::int64_t> bytes, int ranks) {
  std::vector<std::size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return bytes[a] > bytes[b]; });
  std::vector<std::int64_t> shares(static_cast<std::size_t>(ranks));
  std::vector<int> writers(bytes.size());
  for (const std::size_t tensor : order) {
    const auto least = std::min_element(shares.begin(), shares.end());
    *least += bytes[tensor];
    writers[tensor] = static_cast<int>(least - shares.begin());
  }
  return writers;
}

}  // namespace troupe::train
