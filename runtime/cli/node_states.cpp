#include "troupe/runtime/cli/node_states.hpp"

#include <algorithm>
#include <cstddef>

namespace troupe::cli {
namespace {

constexpr std::size_t kNamed = 5;  ///< the most nodes that one sentence names

}  // namespace

NodeStates::NodeStates(const std::vector<control::ClusterRow>& nodes) {
  for (const auto& row : nodes)
    for (const NodeId node : row.report.unreachable)
      unreached_[node].push_back(row.description.name);
}

const char* NodeStates::state_of(const control::ClusterRow& row) const {
  if (row.suspect) return "suspect";
  if (!unreached_from(row).empty()) return "unreachable";
  if (row.draining) return "draining";
  return row.avoided ? "slow" : "alive";
}

const std::vector<std::string>& NodeStates::unreached_from(const control::ClusterRow& row) const {
  static const std::vector<std::string> none;
  const auto at = unreached_.find(row.description.id);
  return at != unreached_.end() ? at->second : none;
}

std::string NodeStates::reach_text(const control::ClusterRow& row) const {
  const std::vector<std::string>& from = unreached_from(row);
  if (from.empty()) return "";
  std::string text = "unreachable from " + std::to_string(from.size()) + " node" +
                     (from.size() == 1 ? "" : "s") + " (" + from.front();
  for (std::size_t i = 1; i < std::min(from.size(), kNamed); ++i) text += ", " + from[i];
  if (from.size() > kNamed) text += ", ...";
  return text + "), whose work does not go there: is " + row.description.address +
         " an address that they reach (--listen of 'troupe start'), and does a firewall let them?";
}

std::string NodeStates::why(const control::ClusterRow& row) const {
  std::string reach = reach_text(row);
  return reach.empty() ? row.slow : reach;
}

}  // namespace troupe::cli
