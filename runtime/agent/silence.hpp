/// Which nodes say nothing and are not known to be dead. A plain state machine of the network.
///
///     silence.suspect({node});                          // control's list, whole
///     silence.link(node, link->due_since(), now);       // each tick
///     for (auto [node, silent] : silence.take_changes()) tell(node, silent);
///
/// A node is silent while control misses its heartbeats, or while it has owed this node a sign of
/// life for `after`: where only the way between the two is cut, control hears both.
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
  /// Control misses these and no others.
  void suspect(const std::set<NodeId>& nodes);
  /// `due`: since when its Link has waited for it; Time::max(): it does not.
  void link(NodeId node, Time due, Time now);
  /// It is dead, or nobody knows it: it is not silent any more.
  void forget(NodeId node);
  /// Since this was asked last, in order.
  std::vector<Change> take_changes() { return std::exchange(changes_, {}); }

 private:
  struct State {
    bool suspected = false, owes = false;
    bool silent() const noexcept { return suspected || owes; }
  };
  void set(NodeId node, State state);

  Duration after_;
  std::map<NodeId, State> states_;  ///< of those that are silent
  std::vector<Change> changes_;
};

}  // namespace troupe::agent
