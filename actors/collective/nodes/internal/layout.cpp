#include "troupe/actors/collective/nodes/internal/layout.hpp"

#include <algorithm>
#include <iterator>

namespace troupe::collective::nodes {

int Layout::segment_of(int rank) const noexcept {
  const auto behind = std::upper_bound(begins.begin(), begins.end(), rank);
  return static_cast<int>(behind - begins.begin()) - 1;
}

int Layout::rank_of(int world_rank) const noexcept {
  const auto found = std::find(world.begin(), world.end(), world_rank);
  return found == world.end() ? -1 : static_cast<int>(found - world.begin());
}

std::optional<Layout> layout_of(std::vector<int> world, const std::vector<int>& node_of) {
  Layout layout;
  layout.world = std::move(world);
  std::vector<int> seen;
  for (int rank = 0; rank < layout.size(); ++rank) {
    const int node = node_of[static_cast<std::size_t>(layout.world_of(rank))];
    if (!seen.empty() && seen.back() == node) continue;
    if (std::find(seen.begin(), seen.end(), node) != seen.end()) return std::nullopt;
    seen.push_back(node);
    layout.begins.push_back(rank);
  }
  layout.begins.push_back(layout.size());
  return layout;
}

}  // namespace troupe::collective::nodes
