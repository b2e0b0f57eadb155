#include "troupe/runtime/agent/cluster_news.hpp"

#include <algorithm>
#include <utility>

namespace troupe::agent {

bool ClusterNews::tells() const {
  const auto first = std::min_element(
      nodes_.begin(), nodes_.end(),
      [](const auto& a, const auto& b) { return a.second.epoch < b.second.epoch; });
  return first != nodes_.end() && first->first == self_;
}

std::optional<Event> ClusterNews::registered(Epoch control_epoch, Time now) {
  const Epoch before = std::exchange(control_epoch_, control_epoch);
  if (before == control_epoch) return std::nullopt;
  quiet_until_ = now + kRegistering;
  if (before == 0 || !tells()) return std::nullopt;
  return Event{EventKind::control_started, Severity::warning, "control has started again"};
}

std::vector<Event> ClusterNews::nodes(const std::vector<control::ClusterRow>& rows, Time now) {
  std::vector<Event> events;
  for (const control::ClusterRow& row : rows) {
    const auto [at, is_new] = nodes_.try_emplace(row.description.id);
    Known& node = at->second;
    const std::string& name = row.description.name;
    node.name = name;
    node.epoch = row.epoch;
    if (is_new)
      events.push_back({EventKind::node_joined, Severity::info,
                        name + " has joined, at " + row.description.address});
    if (row.draining && !std::exchange(node.draining, true))
      events.push_back({EventKind::node_draining, Severity::info,
                        name + " drains: it gets nothing new and leaves when it is empty"});
    if (row.suspect && !node.silent && now >= quiet_until_) {
      node.silent = true;
      events.push_back(
          {EventKind::node_silent, Severity::warning, name + " does not answer control"});
    } else if (!row.suspect && std::exchange(node.silent, false)) {
      events.push_back({EventKind::node_heard, Severity::info, name + " answers control again"});
    }
  }
  if (!tells()) events.clear();
  return events;
}

std::optional<Event> ClusterNews::node_dead(NodeId node, const std::string& why) {
  const auto at = nodes_.find(node);
  const std::string name = at != nodes_.end() ? at->second.name : "node " + node.str().substr(0, 8);
  if (at != nodes_.end()) nodes_.erase(at);
  if (!tells()) return std::nullopt;
  if (why == control::kHasLeft)
    return Event{EventKind::node_left, Severity::info, name + " has left the cluster"};
  return Event{EventKind::node_dead, Severity::error, name + " is dead: " + why};
}

std::optional<Event> ClusterNews::job_ended(const control::JobEnded& ended) {
  if (!ended_.insert(ended.job).second) return std::nullopt;
  ended_order_.push_back(ended.job);
  if (ended_order_.size() > kMostEnded) {
    ended_.erase(ended_order_.front());
    ended_order_.pop_front();
  }
  if (!tells()) return std::nullopt;
  Event event{EventKind::job_ended, Severity::info,
              "job " + ended.job.str().substr(0, 8) + " has ended: " +
                  std::string(name_of(ended.state)) + (ended.why.empty() ? "" : ", ") + ended.why};
  if (ended.state == control::JobState::failed) event.severity = Severity::error;
  event.job = ended.job;
  return event;
}

std::vector<Event> SpillNews::look(const Seen& seen) {
  std::vector<Event> events;
  if (seen.objects == 0) {
    told_ = 0;
  } else if (told_ == 0 || seen.objects / 2 >= told_) {
    told_ = seen.objects;
    events.push_back({EventKind::spilling, Severity::warning,
                      "the object store is full: " + std::to_string(seen.objects) +
                          (seen.objects == 1 ? " object of " : " objects of ") +
                          std::to_string(seen.bytes >> 20) + " MiB are on disk alone"});
  }
  if (seen.bad_folders > std::exchange(bad_folders_, seen.bad_folders))
    events.push_back({EventKind::disk_failed, Severity::error,
                      std::to_string(seen.bad_folders) +
                          " folders for objects on disk have failed too often and are left alone: "
                          "'troupe memory' tells of each node's disk"});
  if (seen.copy_errors > 0 && !std::exchange(copies_failed_, true))
    events.push_back(
        {EventKind::disk_failed, Severity::error,
         "objects are not all copied to the shared spill folders: a write has failed"});
  return events;
}

}  // namespace troupe::agent
