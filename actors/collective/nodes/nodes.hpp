/// A group whose ranks are processes of several nodes. Ranks of one node share memory, as in shm/;
/// the first rank of each node exchanges with those of its neighbour nodes over links (link.hpp).
///
///     auto comm = join_nodes_group({.nodes = {"a", "a", "b"}, .rank = 2, ...}, links);
///     comm->all_reduce(gradients, Reduce::mean).wait();
///
/// Sums are the left fold over ranks that shm makes, so the placement of ranks changes no bit.
#pragma once

#include "troupe/actors/collective/communicator.hpp"
#include "troupe/actors/collective/nodes/link.hpp"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace troupe::collective {

struct NodesOptions {
  /// The node of each rank of the world. Ranks with equal text share memory; they are consecutive.
  std::vector<std::string> nodes;
  int rank = 0;
  /// Names the shared memory of this gang, as new_rendezvous_name() returns it; equal on all ranks.
  std::string rendezvous;
  std::uint64_t generation = 1;
  Bytes slot = {4 << 20};  ///< as ShmOptions::slot
  int splits = 8;          ///< as ShmOptions::splits
  Duration timeout = std::chrono::seconds(30);
  Progress progress = Progress::caller;
};

/// Joins as one rank. Blocks until the ranks of its own node have met, at most `timeout`; does not
/// wait for other nodes. Throws InvalidArgument for a rank that does not exist and for nodes whose
/// ranks are not consecutive; TimedOut when a rank of this node does not come.
TROUPE_API std::unique_ptr<Communicator> join_nodes_group(const NodesOptions& options,
                                                          std::shared_ptr<LinkSource> links);

}  // namespace troupe::collective
