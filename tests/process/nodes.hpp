/// The nodes of a cluster that a test has just started.
#pragma once

#include "tests/eventually.hpp"
#include "troupe/troupe.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

/// All but this process's own, as soon as there are so many in all; none when that takes too long.
inline std::vector<troupe::NodeId> other_nodes(
    const troupe::Context& ctx, std::size_t all,
    std::chrono::milliseconds limit = std::chrono::seconds(20)) {
  std::vector<troupe::NodeId> others;
  if (!eventually([&] { return ctx.cluster().nodes.size() == all; }, limit)) return others;
  for (const auto& node : ctx.cluster().nodes)
    if (node.id != ctx.node()) others.push_back(node.id);
  return others;
}

/// Whether there are so many nodes, and each has all its CPUs free.
inline bool all_idle(const troupe::Context& ctx, std::size_t all, double cpus) {
  const auto nodes = ctx.cluster().nodes;
  return nodes.size() == all && std::all_of(nodes.begin(), nodes.end(), [&](const auto& node) {
           return node.alive && node.cpus_free == cpus;
         });
}
