/// Who serves whom when several nodes want the same object of this node: the first get it from
/// here, the next from those, and so on: a tree, so that no node sends more than a few copies. A
/// plain state machine.
///
///     Broadcast tree;
///     if (auto other = tree.place(object, stamp, asker, request.without, request.direct))
///       send(asker, PullElsewhere{request.transfer, *other});    // else: serve it
///
/// A node that was named passes on what it has while it gets the rest, so the depth of the tree
/// costs a few chunks of time. It need not have the object any more: then its asker comes back and
/// says so (`without`), and it is named no more until it has asked itself.
///
/// Invariants: BROADCAST-1 nobody is named to a node that it gets its own bytes from, over any
/// number of others. BROADCAST-2 a node has at most `fan` nodes that were sent to it, this node too
/// unless nobody else is left. BROADCAST-3 at most `objects` are remembered, those asked for last.
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

  /// Whom the asker is sent to for the object's life of this stamp; nullopt: it is served here.
  /// `without`: was named to it and did not deliver. `direct`: it must be served here.
  /// Cost: O(nodes that have asked) times the depth of the tree.
  std::optional<NodeId> place(ObjectId object, std::uint64_t stamp, NodeId asker, NodeId without,
                              bool direct);
  void node_died(NodeId node);
  std::size_t size() const noexcept { return trees_.size(); }

 private:
  struct Member {
    NodeId node;
    NodeId parent;         ///< zero: this node
    std::size_t fed = 0;   ///< whose parent it is
    bool useless = false;  ///< it did not deliver
  };
  struct Tree {
    std::uint64_t stamp = 0;
    std::uint64_t used = 0;       ///< by age
    std::size_t fed = 0;          ///< from here
    std::vector<Member> members;  ///< in order of their first asking
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
