#include "troupe/runtime/agent/silence.hpp"

namespace troupe::agent {

void Silence::set(NodeId node, State state) {
  const auto at = states_.find(node);
  const bool was = at != states_.end();
  if (was && state.silent())
    at->second = state;
  else if (was)
    states_.erase(at);
  else if (state.silent())
    states_.emplace(node, state);
  if (was != state.silent()) changes_.push_back({node, state.silent()});
}

void Silence::suspect(const std::set<NodeId>& nodes) {
  std::vector<std::pair<NodeId, State>> heard;
  for (const auto& [node, state] : states_)
    if (state.suspected && nodes.count(node) == 0) heard.push_back({node, {false, state.owes}});
  for (const auto& [node, state] : heard) set(node, state);
  for (const NodeId node : nodes) {
    const auto at = states_.find(node);
    set(node, {true, at != states_.end() && at->second.owes});
  }
}

void Silence::link(NodeId node, Time due, Time now) {
  const auto at = states_.find(node);
  set(node,
      {at != states_.end() && at->second.suspected, due != Time::max() && now - due >= after_});
}

void Silence::forget(NodeId node) {
  set(node, {});
}

}  // namespace troupe::agent
