/// Short makers of nodes, clusters and demands, for the tests of placement and leases.
#pragma once

#include "troupe/runtime/scheduling/policy.hpp"

#include <string>
#include <utility>
#include <vector>

namespace troupe::scheduling {

inline NodeId node_id(std::uint64_t n) {
  return NodeId{0, n};
}

inline NodeView node(std::uint64_t id, double cpus, double gpus = 0) {
  NodeView view;
  view.id = node_id(id);
  view.name = "n" + std::to_string(id);
  view.total = {.cpus = amount_of(cpus), .gpus = amount_of(gpus), .memory = 8ll << 30};
  view.free = view.total;
  view.gpu_free.assign(static_cast<std::size_t>(gpus), kUnit);
  return view;
}

inline ClusterView cluster(std::vector<NodeView> nodes, std::uint64_t self = 1) {
  ClusterView view;
  for (auto& n : nodes) view.update(std::move(n));
  view.self = node_id(self);
  return view;
}

inline ResourceDemand demand(double cpus, double gpus = 0) {
  ResourceDemand s;
  s.need.cpus = amount_of(cpus);
  s.need.gpus = amount_of(gpus);
  return s;
}

}  // namespace troupe::scheduling
