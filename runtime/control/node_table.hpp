/// What control shows of each live node, in ClusterNodes and in the view: durable facts and the
/// node's own reports. A plain state machine; Service feeds it what is durable.
///
///     nodes.recover(record);                         // an earlier control knew the node
///     nodes.up(record);                              // its registration is durable
///     if (NodeTable::Node* node = nodes.report(from, epoch, message)) …
///     nodes.remove(id, epoch);                       // its death is durable
///     send(ClusterNodes{version, nodes.rows(4096)});
///
/// An entry belongs to one process, which the epoch names. What is said of another one changes
/// nothing. A report that comes before the registration is durable waits for it.
#pragma once

#include "troupe/runtime/control/membership.hpp"
#include "troupe/runtime/control/messages.hpp"

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace troupe::control {

class NodeTable {
 public:
  struct Node {
    NodeDescription description;
    Epoch epoch = 0;
    bool registered = false;  ///< with this control
    bool suspect = false;
    bool draining = false;
    bool avoided = false;  ///< it is slow
    std::string slow;      ///< why, for people
    NodeReport report;
    bool accepts() const { return registered && !suspect && !draining && report.view.accepts; }
  };

  /// Puts in a node that an earlier control knew. It is suspect until it has registered.
  void recover(const NodeRecord& record);
  /// Takes a durable registration. Without a report all of the node counts as free.
  void up(const NodeRecord& record);
  /// Takes a report. Returns the node; null while its registration is not durable.
  Node* report(NodeId node, Epoch epoch, const NodeReport& report);
  /// Removes the node, if it is still this process, and what it reported early. Returns whether it
  /// was.
  bool remove(NodeId node, Epoch epoch);

  /// Both return null when there is none.
  Node* find(NodeId node);
  const Node* find(NodeId node) const;
  /// Also null when it is another process.
  Node* find(NodeId node, Epoch epoch);
  const std::map<NodeId, Node>& all() const noexcept { return nodes_; }
  /// Returns the nodes that are registered with this control.
  std::vector<NodeId> listeners(bool suspects_too) const;
  /// Returns the first rows of ClusterNodes, in order of the ids.
  std::vector<ClusterRow> rows(std::size_t most) const;

 private:
  std::map<NodeId, Node> nodes_;
  std::map<NodeId, NodeReport> early_;  ///< reports from before the registration was durable
};

}  // namespace troupe::control
