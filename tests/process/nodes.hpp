/// Helpers around the nodes of a cluster that a test has just started.
#pragma once

#include "tests/eventually.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

/// Returns all nodes but this process's own, as soon as the cluster has `all` nodes. Returns none
/// when that takes longer than `limit`.
inline std::vector<troupe::NodeId> other_nodes(
    const troupe::Context& ctx, std::size_t all,
    std::chrono::milliseconds limit = std::chrono::seconds(20)) {
  std::vector<troupe::NodeId> others;
  if (!eventually([&] { return ctx.cluster().nodes.size() == all; }, limit)) return others;
  for (const auto& node : ctx.cluster().nodes)
    if (node.id != ctx.node()) others.push_back(node.id);
  return others;
}

/// Returns whether the cluster has `all` nodes, each alive and with `cpus` CPUs free.
inline bool all_idle(const troupe::Context& ctx, std::size_t all, double cpus) {
  const auto nodes = ctx.cluster().nodes;
  return nodes.size() == all && std::all_of(nodes.begin(), nodes.end(), [&](const auto& node) {
           return node.alive && node.cpus_free == cpus;
         });
}

/// A cluster of one driver and its nodes, of which the test may kill some.
struct ClusterOfNodes : testing::Test {
  void start(unsigned nodes, troupe::SessionOptions options = {.cpus = 1}) {
    options.nodes = nodes;
    cluster = std::make_unique<troupe::Session>(options);
    others = other_nodes(cluster->context(), nodes);
    ASSERT_EQ(others.size() + 1, nodes);
  }
  /// Returns a context that places work on one of `others`.
  auto on(std::size_t node) const {
    return cluster->context().with({.placement = troupe::Placement::on(others.at(node))});
  }
  /// Returns the bytes used in the stores of all nodes.
  std::uint64_t bytes() const {
    std::uint64_t used = 0;
    for (const auto& node : cluster->context().cluster().nodes) used += node.store_used.count;
    return used;
  }
  std::unique_ptr<troupe::Session> cluster;
  std::vector<troupe::NodeId> others;
};
