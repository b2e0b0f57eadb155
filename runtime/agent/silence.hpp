/// Keeps the set of silent nodes: those that send nothing and are not known to be dead. A plain
/// state machine of Network.
///
///     silence.suspect({node});                          // control's list, whole
///     silence.link(node, link->due_since(), now);       // each tick
///     for (auto [node, silent] : silence.take_changes()) tell(node, silent);
///
/// A node is silent while control misses its heartbeats, or while it has owed this node an answer
/// for `after`. The second rule finds a cut between two nodes that both reach control.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/ids.hpp"

#include <map>
#include <set>
#include <utility>
#include <vector>

namespace troupe::agent {

class Silence {
 public:
  struct Change {
    NodeId node;
    bool silent = false;
  };
  explicit Silence(Duration after) : after_(after) {}
  /// Sets the nodes whose heartbeats control misses: these and no others.
  void suspect(const std::set<NodeId>& nodes);
  /// Sets since when the Link to a node has waited for an answer (`due`); Time::max(): it does not
  /// wait.
  void link(NodeId node, Time due, Time now);
  /// Removes a node that is dead or unknown; it is not silent any more.
  void forget(NodeId node);
  /// The changes since the last call, in order.
  std::vector<Change> take_changes() { return std::exchange(changes_, {}); }

 private:
  struct State {
    bool suspected = false, owes = false;
    bool silent() const noexcept { return suspected || owes; }
  };
  void set(NodeId node, State state);

  Duration after_;
  std::map<NodeId, State> states_;  ///< of the silent nodes
  std::vector<Change> changes_;
};

}  // namespace troupe::agent
