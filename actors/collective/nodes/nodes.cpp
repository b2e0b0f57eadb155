#include "troupe/actors/collective/nodes/nodes.hpp"

#include "troupe/actors/collective/nodes/internal/communicator.hpp"
#include "troupe/actors/collective/shm/rendezvous.hpp"
#include "troupe/actors/collective/shm/shm.hpp"
#include "troupe/runtime/base/deadline.hpp"

#include <algorithm>
#include <numeric>

namespace troupe::collective {
namespace {

[[noreturn]] void reject(const std::string& why) {
  throw InvalidArgument(Code::invalid_argument, why);
}

/// Returns the number of each rank's node.
std::vector<int> numbers_of(const std::vector<std::string>& nodes) {
  std::vector<int> numbers;
  std::vector<std::string> seen;
  for (const std::string& node : nodes) {
    const auto found = std::find(seen.begin(), seen.end(), node);
    if (found != seen.end() && found + 1 != seen.end())
      reject("the ranks of node " + node +
             " are not consecutive in NodesOptions::nodes; order the ranks by node");
    if (found == seen.end()) seen.push_back(node);
    numbers.push_back(static_cast<int>(seen.size()) - 1);
  }
  return numbers;
}

}  // namespace

std::unique_ptr<Communicator> nodes::join(const NodesOptions& options,
                                          std::shared_ptr<LinkSource> links,
                                          std::shared_ptr<internal::Arena> arena) {
  const std::vector<int> node_of = numbers_of(options.nodes);
  std::vector<int> world(options.nodes.size());
  std::iota(world.begin(), world.end(), 0);
  std::optional<Layout> layout = layout_of(std::move(world), node_of);
  if (!layout) reject("the ranks of a node are not consecutive in NodesOptions::nodes");
  return std::make_unique<NodesCommunicator>(
      std::make_shared<Gang>(std::move(links), std::move(arena), node_of, options.rank),
      std::move(*layout), options.rank,
      NodesCommunicator::How{options.timeout, options.progress, 0});
}

std::unique_ptr<Communicator> join_nodes_group(const NodesOptions& options,
                                               std::shared_ptr<LinkSource> links) {
  const int size = static_cast<int>(options.nodes.size());
  if (size < 1 || size > internal::kMaxSize)
    reject("a group over nodes has 1 to 1024 ranks; NodesOptions::nodes has " +
           std::to_string(size));
  if (options.rank < 0 || options.rank >= size)
    reject("rank " + std::to_string(options.rank) + " is not in a group of " +
           std::to_string(size));
  if (options.timeout <= Duration::zero())
    reject("NodesOptions::timeout must be positive; troupe::forever sets no limit");
  const std::vector<int> node_of = numbers_of(options.nodes);
  const int node = node_of[static_cast<std::size_t>(options.rank)];
  const auto first =
      static_cast<int>(std::find(node_of.begin(), node_of.end(), node) - node_of.begin());
  ShmOptions shm;
  shm.size = static_cast<int>(std::count(node_of.begin(), node_of.end(), node));
  shm.generation = options.generation;
  // A slot has room for a number of each rank.
  shm.slot = {std::max<std::uint64_t>(options.slot.count,
                                      static_cast<std::uint64_t>(size) * sizeof(double) * 2)};
  shm.splits = options.splits;
  const int rank = options.rank - first;
  const Time deadline = deadline_after(steady_now(), options.timeout);
  const std::string name = options.rendezvous + "-" + std::to_string(first);
  Fd memory;
  if (rank == 0) {
    memory = create_shm_group(shm);
    if (shm.size > 1) share_group(name, memory, shm.size - 1, deadline);
  } else {
    memory = fetch_group(name, deadline);
  }
  return nodes::join(options, std::move(links),
                     internal::open_shm_arena(memory, rank, options.generation));
}

}  // namespace troupe::collective
