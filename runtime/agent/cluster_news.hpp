/// Turns what an agent hears of nodes and jobs into events, each once in the cluster. All agents
/// hear the same; that of the oldest node tells, which is one of the head. When it dies, the next one
/// does. A plain state machine.
///
///     ClusterNews news(self);
///     for (Event& event : news.nodes(rows, now)) log.add(std::move(event), unix_ns);
///     news.node_dead(node, "its process is gone");
///     news.job_ended({job, JobState::failed, "…"});      // nullopt: it was told before
#pragma once

#include "troupe/runtime/agent/event_log.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/control/messages.hpp"

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace troupe::agent {

class ClusterNews {
 public:
  /// So long after a start of control nodes count as silent until they have registered again.
  static constexpr Duration kRegistering = std::chrono::seconds(5);
  static constexpr std::size_t kMostEnded = 256;  ///< jobs of which the end is remembered

  explicit ClusterNews(NodeId self) : self_(self) {}

  /// This node has registered with control.
  std::optional<Event> registered(Epoch control_epoch, Time now);
  std::vector<Event> nodes(const std::vector<control::ClusterRow>& rows, Time now);
  std::optional<Event> node_dead(NodeId node, const std::string& why);
  std::optional<Event> job_ended(const control::JobEnded& ended);

 private:
  struct Known {
    std::string name;
    bool silent = false, draining = false;
    Epoch epoch = 0;
  };
  /// Returns whether this agent is the one that tells.
  bool tells() const;

  const NodeId self_;
  std::map<NodeId, Known> nodes_;
  std::set<JobId> ended_;
  std::deque<JobId> ended_order_;
  Epoch control_epoch_ = 0;
  Time quiet_until_{};
};

/// Says when a node begins to keep objects on disk, and again each time that they have doubled.
class SpillNews {
 public:
  struct Seen {
    std::uint64_t objects = 0, bytes = 0;  ///< whose only copy is on disk
    std::uint32_t bad_folders = 0;
    std::uint64_t copy_errors = 0;  ///< of folders that all nodes see
  };
  std::vector<Event> look(const Seen& seen);

 private:
  std::uint64_t told_ = 0;
  std::uint32_t bad_folders_ = 0;
  bool copies_failed_ = false;
};

}  // namespace troupe::agent
