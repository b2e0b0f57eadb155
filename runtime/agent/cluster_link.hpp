/// What a node knows of the other nodes of its cluster, and when it speaks of itself: the roster
/// that control sends, which nodes are out of reach, reports and the run times of tasks. A plain
/// state machine of the agent.
///
///     cluster.on_nodes(message, now);             // the lease table gets a view of each node
///     cluster.out_of_reach(network.out_of_reach(now, most), now);
///     if (cluster.is_report_due(now) && cluster.is_news(report, now)) …;   // → NodeReport
///     if (auto pace = cluster.take_pace(now)) …;                           // → NodePace
///
/// Invariants: CLUSTER-1 The lease table has a view of exactly the nodes of the roster that are
/// not dead; this node is none of them. CLUSTER-2 A node that is suspect, draining or out of reach
/// accepts nothing new in its view. CLUSTER-3 Each node of a roster is watched by as many others
/// as all nodes watch.
#pragma once

#include "troupe/runtime/agent/reports.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/control/messages.hpp"
#include "troupe/runtime/scheduling/lease_table.hpp"
#include "troupe/runtime/scheduling/pace.hpp"

#include <optional>
#include <set>
#include <vector>

namespace troupe::agent {

class ClusterLink {
 public:
  ClusterLink(NodeId self, scheduling::LeaseTable& leases) : self_(self), leases_(leases) {}

  // --- other nodes
  void on_nodes(const control::ClusterNodes& nodes, Time now);
  void node_dead(NodeId node, Time now);
  /// Returns the roster, with this node and nodes that have died since.
  const std::vector<control::ClusterRow>& rows() const noexcept { return roster_.rows; }
  /// Returns the live nodes of the roster, except this one.
  const std::set<NodeId>& others() const noexcept { return others_; }
  bool knows(NodeId node) const { return others_.count(node) != 0; }

  // --- reach
  /// Returns whether it is time to look which nodes are out of reach. True once per interval.
  bool is_touch_due(Time now);
  /// Returns the next nodes after this one, in a ring of all nodes by id. Each node is thus watched
  /// by some, who find out that it cannot be reached before there is work for it.
  std::set<NodeId> watched() const;
  /// Takes the nodes that are out of reach, sorted. Updates the views of those that went or came.
  void out_of_reach(std::vector<NodeId> nodes, Time now);
  const std::vector<NodeId>& out_of_reach() const noexcept { return out_of_reach_; }

  // --- what control is told
  bool is_report_due(Time now) { return reports_.due(now); }
  /// Returns whether the report is to be sent; if so, it counts as sent.
  bool is_news(const control::NodeReport& report, Time now) {
    return reports_.is_news(report, leases_.spilled_here(), now);
  }
  /// Makes the next report news: control may be another process now.
  void report_again() { reports_.forget(); }
  Time next_report() const noexcept { return reports_.next_deadline(); }
  void add_pace(const wire::Pace& pace);
  /// Returns how long tasks ran here since the last call that returned something; nullopt when
  /// nothing ran or it is too early. The pause grows with the cluster, to spare control.
  std::optional<control::NodePace> take_pace(Time now);

 private:
  bool is_out_of_reach(NodeId node) const;
  void update_view(const control::ClusterRow& row, Time now);

  const NodeId self_;
  scheduling::LeaseTable& leases_;
  control::ClusterNodes roster_;
  std::set<NodeId> others_;
  std::vector<NodeId> out_of_reach_;  ///< sorted; part of each NodeReport
  Reports reports_;                   ///< when control gets a NodeReport
  Time next_touch_{};
  scheduling::SiteRunTimes pace_;  ///< of all workers, since the last NodePace
  Time next_pace_{};
};

}  // namespace troupe::agent
