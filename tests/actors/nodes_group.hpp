// Groups over nodes whose ranks are threads of one process. Ranks of a node share a memfd; nodes
// are connected by plain links.
#pragma once

#include "tests/actors/plain_links.hpp"
#include "troupe/actors/collective/nodes/internal/communicator.hpp"
#include "troupe/actors/collective/shm/shm.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe::collective {

struct NodesGroupOptions {
  Bytes slot = {1 << 16};
  Duration timeout = std::chrono::seconds(20);
  Progress progress = Progress::caller;
  int buffer = 0;  ///< of a socket
};

/// Returns the ranks of a group with this many ranks on each node, over the links of these sources.
inline std::vector<std::unique_ptr<Communicator>> nodes_group_over(
    const std::function<std::shared_ptr<LinkSource>(int)>& source_of,
    const std::vector<int>& ranks_on, const NodesGroupOptions& with = {}) {
  NodesOptions options;
  options.timeout = with.timeout;
  options.progress = with.progress;
  for (std::size_t node = 0; node < ranks_on.size(); ++node)
    options.nodes.insert(options.nodes.end(), static_cast<std::size_t>(ranks_on[node]),
                         "node-" + std::to_string(node));
  std::vector<std::unique_ptr<Communicator>> group;
  for (const int ranks : ranks_on) {
    const Fd memory = create_shm_group({.size = ranks, .slot = with.slot});
    for (int rank = 0; rank < ranks; ++rank) {
      options.rank = static_cast<int>(group.size());
      group.push_back(
          nodes::join(options, source_of(options.rank), internal::open_shm_arena(memory, rank, 1)));
    }
  }
  return group;
}

/// Returns the ranks of a group over plain links.
inline std::vector<std::unique_ptr<Communicator>> nodes_group(const std::vector<int>& ranks_on,
                                                              const NodesGroupOptions& with = {}) {
  const auto links = std::make_shared<PlainLinks>(with.buffer);
  return nodes_group_over([&](int rank) { return links->source(rank); }, ranks_on, with);
}

/// Return how many ranks each node has.
inline std::vector<int> one_a_node(int size) {
  return std::vector<int>(static_cast<std::size_t>(size), 1);
}
inline std::vector<int> two_a_node(int size) {
  std::vector<int> nodes(static_cast<std::size_t>(size / 2), 2);
  if (size % 2 != 0) nodes.push_back(1);
  return nodes;
}
inline std::vector<int> all_but_one(int size) {
  return size == 1 ? std::vector<int>{1} : std::vector<int>{size - 1, 1};
}

}  // namespace troupe::collective
