#include "troupe/runtime/agent/cluster_link.hpp"

#include <algorithm>
#include <utility>

namespace troupe::agent {
namespace {

constexpr Duration kPaceInterval = std::chrono::milliseconds(500),
                   kMostPace = std::chrono::seconds(2);
constexpr Duration kTouchInterval = std::chrono::seconds(1);
constexpr std::size_t kWatched = 3;  ///< nodes to which a connection is kept in any case

}  // namespace

// --- other nodes

void ClusterLink::on_nodes(const control::ClusterNodes& nodes, Time now) {
  roster_ = nodes;
  std::set<NodeId> gone = std::exchange(others_, {});
  for (const control::ClusterRow& row : roster_.rows) {
    if (row.description.id == self_) {
      leases_.set_slow(row.avoided, now);
      continue;
    }
    others_.insert(row.description.id);
    gone.erase(row.description.id);
    update_view(row, now);
  }
  for (const NodeId node : gone) leases_.node_gone(node, now);
}

void ClusterLink::node_dead(NodeId node, Time now) {
  others_.erase(node);
  leases_.node_gone(node, now);
}

/// Gives the lease table the row of another node, as far as this node can use it.
void ClusterLink::update_view(const control::ClusterRow& row, Time now) {
  scheduling::NodeView view = row.report.view;
  view.id = row.description.id;
  view.name = row.description.name;
  view.labels = row.description.labels;
  view.total = row.description.resources;
  view.accepts = view.accepts && !row.suspect && !row.draining && !is_out_of_reach(view.id);
  view.slow = row.avoided;
  leases_.update_node(view, now);
}

// --- reach

bool ClusterLink::is_touch_due(Time now) {
  if (now < next_touch_) return false;
  next_touch_ = now + kTouchInterval;
  return true;
}

std::set<NodeId> ClusterLink::watched() const {
  std::set<NodeId> watched;
  auto next = others_.upper_bound(self_);
  while (watched.size() < std::min(kWatched, others_.size())) {
    if (next == others_.end()) next = others_.begin();
    watched.insert(*next++);
  }
  return watched;
}

void ClusterLink::out_of_reach(std::vector<NodeId> nodes, Time now) {
  if (nodes == out_of_reach_) return;
  std::swap(nodes, out_of_reach_);
  for (const control::ClusterRow& row : roster_.rows) {
    const NodeId node = row.description.id;
    const bool was = std::binary_search(nodes.begin(), nodes.end(), node);
    if (knows(node) && is_out_of_reach(node) != was) update_view(row, now);
  }
}

bool ClusterLink::is_out_of_reach(NodeId node) const {
  return std::binary_search(out_of_reach_.begin(), out_of_reach_.end(), node);
}

// --- what control is told

void ClusterLink::add_pace(const wire::Pace& pace) {
  for (const wire::SitePace& site : pace.sites) pace_.add(site.function, site.tasks, site.ran_ns);
}

std::optional<control::NodePace> ClusterLink::take_pace(Time now) {
  if (pace_.empty() || now < next_pace_) return std::nullopt;
  const auto stretch = static_cast<Duration::rep>(1 + roster_.rows.size() / 64);
  next_pace_ = now + std::min(kPaceInterval * stretch, kMostPace);
  return control::NodePace{pace_.take()};
}

}  // namespace troupe::agent
