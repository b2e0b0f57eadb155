#include "troupe/runtime/agent/broadcast.hpp"

#include <algorithm>

namespace troupe::agent {

Broadcast::Member* Broadcast::find(Tree& tree, NodeId node) {
  const auto at = std::find_if(tree.members.begin(), tree.members.end(),
                               [node](const Member& member) { return member.node == node; });
  return at == tree.members.end() ? nullptr : &*at;
}

/// Whether the bytes that `below` gets come from `above`, over any number of nodes.
bool Broadcast::feeds(Tree& tree, NodeId above, NodeId below) {
  NodeId at = below;
  for (std::size_t steps = 0; at && steps <= tree.members.size(); ++steps) {
    if (at == above) return true;
    const Member* member = find(tree, at);
    at = member != nullptr ? member->parent : NodeId{};
  }
  return false;
}

/// Takes the member from the count of its parent: another member, or this node (zero). A parent
/// that has died is not in the tree and has no count.
void Broadcast::detach(Tree& tree, const Member& member) {
  Member* parent = find(tree, member.parent);
  std::size_t& fed = parent != nullptr ? parent->fed : tree.fed;
  if ((parent != nullptr || !member.parent) && fed > 0) --fed;
}

std::optional<NodeId> Broadcast::place(ObjectId object, std::uint64_t stamp, NodeId asker,
                                       NodeId without, bool direct) {
  Tree& tree = trees_[object];
  if (tree.stamp != stamp) tree = {};
  tree.stamp = stamp;
  tree.used = ++clock_;
  if (Member* failed = find(tree, without)) failed->useless = true;
  if (Member* known = find(tree, asker)) {
    detach(tree, *known);
    known->useless = false;
    known->parent = {};
  } else {
    tree.members.push_back({asker, {}, 0, false});
  }
  Member* chosen = nullptr;
  if (!direct && tree.fed >= options_.fan)
    for (Member& member : tree.members) {
      if (member.useless || member.fed >= options_.fan || member.node == without) continue;
      if (feeds(tree, asker, member.node)) continue;
      chosen = &member;
      break;
    }
  if (chosen != nullptr) {
    ++chosen->fed;
    const NodeId named = chosen->node;
    find(tree, asker)->parent = named;
    return named;
  }
  ++tree.fed;
  forget_oldest();
  return std::nullopt;
}

void Broadcast::forget_oldest() {
  if (trees_.size() <= options_.objects) return;
  trees_.erase(std::min_element(trees_.begin(), trees_.end(), [](const auto& a, const auto& b) {
    return a.second.used < b.second.used;
  }));
}

/// Removes a node from all trees. The members that it fed ask again by themselves.
void Broadcast::node_died(NodeId node) {
  for (auto& [object, tree] : trees_) {
    const Member* dead = find(tree, node);
    if (dead == nullptr) continue;
    detach(tree, *dead);
    tree.members.erase(tree.members.begin() + (dead - tree.members.data()));
  }
}

}  // namespace troupe::agent
