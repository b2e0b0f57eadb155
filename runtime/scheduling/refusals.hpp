/// The nodes that never start a worker of a job, with their reasons. A plain container of
/// LeaseTable.
///
///     refusals.add(job, node, "node b cannot start …");
///     if (refusals.has(job)) choose(refusals.without(view, job), demand);
///     refusals.forget(node);                            // its agent has ended
#pragma once

#include "troupe/runtime/scheduling/policy.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace troupe::scheduling {

class Refusals {
 public:
  /// Returns false if the node refuses the job already: the first reason stays.
  bool add(JobNumber job, NodeId node, std::string why) {
    return why_.try_emplace({job, node}, std::move(why)).second;
  }
  void forget(JobNumber job) {
    std::erase_if(why_, [job](const auto& one) { return one.first.first == job; });
  }
  void forget(NodeId node) {
    std::erase_if(why_, [node](const auto& one) { return one.first.second == node; });
  }

  bool empty() const noexcept { return why_.empty(); }
  bool has(JobNumber job) const {
    const auto at = why_.lower_bound({job, NodeId{}});
    return at != why_.end() && at->first.first == job;
  }
  bool has(JobNumber job, NodeId node) const { return why_.count({job, node}) != 0; }
  /// Returns the nodes that do not refuse the job.
  ClusterView without(const ClusterView& view, JobNumber job) const {
    ClusterView left = view;
    std::erase_if(left.nodes, [&](const NodeView& node) { return has(job, node.id); });
    return left;
  }
  /// Returns the reason of the first node that refuses the job and could take the demand when it is
  /// empty; empty: there is none.
  std::string why(const ClusterView& view, JobNumber job, const ResourceDemand& demand) const {
    for (const NodeView& node : view.nodes)
      if (const auto at = why_.find({job, node.id}); at != why_.end() && could_fit(node, demand))
        return at->second;
    return {};
  }

 private:
  std::map<std::pair<JobNumber, NodeId>, std::string> why_;
};

}  // namespace troupe::scheduling
