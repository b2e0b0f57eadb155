/// Layout: which ranks of the world a group has, and how they lie on nodes. The ranks of a node are
/// a segment; its first rank is its head.
#pragma once

#include "troupe/actors/collective/nodes/link.hpp"

#include <optional>
#include <vector>

namespace troupe::collective::nodes {

struct Layout {
  LinkName name;            ///< of the group; LinkName::use is 0
  std::vector<int> world;   ///< rank of the world, index = rank of the group
  std::vector<int> begins;  ///< the head of each segment, and size() behind the last one

  int size() const noexcept { return static_cast<int>(world.size()); }
  int segments() const noexcept { return static_cast<int>(begins.size()) - 1; }
  /// Returns the segment of a rank of the group.
  int segment_of(int rank) const noexcept;
  int begin_of(int segment) const noexcept { return begins[static_cast<std::size_t>(segment)]; }
  int size_of(int segment) const noexcept { return begin_of(segment + 1) - begin_of(segment); }
  int world_of(int rank) const noexcept { return world[static_cast<std::size_t>(rank)]; }
  /// Returns the rank of the group that a rank of the world has, or -1.
  int rank_of(int world_rank) const noexcept;
};

/// Returns the layout of a group of these ranks of the world, in this order; nothing when the order
/// leaves a node and comes back to it. `node_of` has the number of each world rank's node.
std::optional<Layout> layout_of(std::vector<int> world, const std::vector<int>& node_of);

}  // namespace troupe::collective::nodes
