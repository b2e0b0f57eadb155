/// The states of living nodes, as `status`, `list`, `get` and `top` show them.
///
///     const NodeStates states(reply.nodes);
///     for (const auto& row : reply.nodes) show(row, states.state_of(row), states.why(row));
#pragma once

#include "troupe/runtime/control/messages.hpp"

#include <map>
#include <string>
#include <vector>

namespace troupe::cli {

class NodeStates {
 public:
  explicit NodeStates(const std::vector<control::ClusterRow>& nodes);

  /// Returns "suspect", "unreachable", "draining", "slow" or "alive".
  const char* state_of(const control::ClusterRow& row) const;
  /// Returns the names of the nodes that report that they get no connection to this one.
  const std::vector<std::string>& unreached_from(const control::ClusterRow& row) const;
  /// Returns a sentence about the nodes that cannot reach this one; empty: all reach it.
  std::string reach_text(const control::ClusterRow& row) const;
  /// Returns why the node is unreachable, or else slow; empty: it is neither.
  std::string why(const control::ClusterRow& row) const;

 private:
  std::map<NodeId, std::vector<std::string>> unreached_;
};

}  // namespace troupe::cli
