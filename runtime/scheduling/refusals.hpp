/// The nodes that never start a worker of a job, with their reasons. A plain container of
/// LeaseTable.
///
///     refusals.add(job, node, "node b cannot start …");
///     choose(view, demand, refusals.of(job));
///     refusals.forget(node);                            // its agent has ended
#pragma once

#include "troupe/runtime/scheduling/policy.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe::scheduling {

class Refusals {
 public:
  /// Returns false if the node refuses the job already: the first reason stays.
  bool add(JobNumber job, NodeId node, std::string why) {
    OfJob& one = jobs_[job];
    const auto at = std::ranges::lower_bound(one.nodes, node);
    if (at != one.nodes.end() && *at == node) return false;
    one.why.insert(one.why.begin() + (at - one.nodes.begin()), std::move(why));
    one.nodes.insert(at, node);
    return true;
  }
  void forget(JobNumber job) { jobs_.erase(job); }
  void forget(NodeId node) {
    for (auto& [job, one] : jobs_) {
      const auto at = std::ranges::lower_bound(one.nodes, node);
      if (at == one.nodes.end() || *at != node) continue;
      one.why.erase(one.why.begin() + (at - one.nodes.begin()));
      one.nodes.erase(at);
    }
    std::erase_if(jobs_, [](const auto& one) { return one.second.nodes.empty(); });
  }

  bool empty() const noexcept { return jobs_.empty(); }
  bool has(JobNumber job) const { return jobs_.count(job) != 0; }
  bool has(JobNumber job, NodeId node) const { return std::ranges::binary_search(of(job), node); }
  /// Returns the nodes that refuse the job, sorted. The next change ends the view.
  std::span<const NodeId> of(JobNumber job) const {
    const auto at = jobs_.find(job);
    return at == jobs_.end() ? std::span<const NodeId>{} : at->second.nodes;
  }
  /// Returns the nodes that do not refuse the job. Cost: a copy of their rows.
  ClusterView without(const ClusterView& view, JobNumber job) const {
    ClusterView left;
    left.self = view.self;
    std::ranges::copy_if(view.nodes, std::back_inserter(left.nodes),
                         [&](const NodeView& node) { return !has(job, node.id); });
    return left;
  }
  /// Returns the reason of the first node that refuses the job and could take the demand when it is
  /// empty; empty: there is none.
  std::string why(const ClusterView& view, JobNumber job, const ResourceDemand& demand) const {
    const auto at = jobs_.find(job);
    if (at == jobs_.end()) return {};
    const OfJob& one = at->second;
    for (std::size_t i = 0; i < one.nodes.size(); ++i)
      if (const NodeView* node = view.find(one.nodes[i]); node && could_fit(*node, demand))
        return one.why[i];
    return {};
  }

 private:
  struct OfJob {
    std::vector<NodeId> nodes;     ///< sorted; never empty
    std::vector<std::string> why;  ///< of each
  };
  std::map<JobNumber, OfJob> jobs_;
};

}  // namespace troupe::scheduling
