/// The tree by which several nodes get the same object of this node. The first askers get it from
/// this node, the next ones from those, and so on, so that each node sends only a few copies. A
/// plain state machine of Transfers.
///
///     Broadcast tree;
///     if (auto other = tree.place(object, stamp, asker, request.without, request.direct))
///       send(asker, PullElsewhere{request.transfer, *other});    // else: serve it
///
/// A named node passes on the bytes that it has while it gets the rest, so each level of the tree
/// costs only the time of a few chunks. A named node may have lost the object. Its asker then asks
/// here again and names it (`without`), and it is not named again until it has asked itself.
///
/// Invariants: BROADCAST-1 An asker is never referred to a node that gets its own bytes from the
/// asker, over any number of others. BROADCAST-2 At most `fan` nodes are referred to one node.
/// This node too serves at most `fan`, unless no other node can be named. BROADCAST-3 At most
/// `objects` are remembered, those asked for last.
#pragma once

#include "troupe/runtime/base/ids.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace troupe::agent {

struct BroadcastOptions {
  std::size_t fan = 2;
  std::size_t objects = 256;
};

class Broadcast {
 public:
  explicit Broadcast(BroadcastOptions options = {}) : options_(options) {}

  /// Returns the node to which the asker is referred for the object's life of this stamp; nullopt:
  /// this node serves it. `without` is a node that was named to the asker and did not deliver.
  /// With `direct` this node must serve it.
  /// Cost: O(nodes that have asked) times the depth of the tree.
  std::optional<NodeId> place(ObjectId object, std::uint64_t stamp, NodeId asker, NodeId without,
                              bool direct);
  void node_died(NodeId node);
  std::size_t size() const noexcept { return trees_.size(); }

 private:
  struct Member {
    NodeId node;
    NodeId parent;         ///< zero: this node
    std::size_t fed = 0;   ///< members whose parent it is
    bool useless = false;  ///< it did not deliver, and has not asked since
  };
  struct Tree {
    std::uint64_t stamp = 0;
    std::uint64_t used = 0;       ///< clock_ at the last request
    std::size_t fed = 0;          ///< members that this node serves
    std::vector<Member> members;  ///< in the order of their first requests
  };
  static Member* find(Tree& tree, NodeId node);
  static bool feeds(Tree& tree, NodeId above, NodeId below);
  static void detach(Tree& tree, const Member& member);
  void forget_oldest();

  BroadcastOptions options_;
  std::map<ObjectId, Tree> trees_;
  std::uint64_t clock_ = 0;
};

}  // namespace troupe::agent
