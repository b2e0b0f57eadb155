/// Finds the slow nodes: those whose tasks take three times as long as the median node's, for the
/// same functions, or whose heartbeats come late again and again. A plain state machine; Service
/// places no new work on them.
///
///     slow.on_pace(node, report.sites, now);
///     slow.on_heartbeat(node, now);
///     for (const SlowNodes::Change& change : slow.on_tick(now)) say(change.why);
///
/// A node's figure for a function is the median of its last eight reports. Each report is the mean
/// over half a second or more, so one long task changes nothing. The figure is compared with the
/// median of all nodes that have one; these are at least three. A node's slowness is the median
/// over its functions. Fewer than half of the nodes can be slow. Functions that differ by less than
/// `margin` do not count.
///
/// A slow node gets no new work, so only tasks that must run there show that it is fast again.
/// Therefore it is tried after ten seconds. If it is still slow, it is tried again after twice as
/// long, up to 160 s.
///
/// A node on which a function always gets larger arguments than elsewhere looks slow too. Tasks
/// that have not ended are not seen.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/ids.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace troupe::control {

struct SlowNodesOptions {
  double slow_from = 3;    ///< a node is slow from so many times the median on
  double fast_below = 2;   ///< and fast again below so many times
  std::size_t nodes = 3;   ///< a function is compared only if so many nodes have a figure
  std::size_t enough = 4;  ///< reports that a node needs for a figure
  std::size_t most = 8;    ///< reports that count
  Duration keep = std::chrono::seconds(30);  ///< how long a report counts
  Duration margin = std::chrono::milliseconds(2);
  Duration heartbeat = std::chrono::seconds(1);
  Duration late = std::chrono::milliseconds(500);  ///< heartbeats this late make a node slow
  Duration look = std::chrono::milliseconds(500);  ///< between two comparisons
  Duration first_trial = std::chrono::seconds(10), last_trial = std::chrono::seconds(160);
  std::size_t functions = 64;  ///< of one node, at most
};

class SlowNodes {
 public:
  explicit SlowNodes(SlowNodesOptions options = {}) : options_(options) {}

  void on_pace(NodeId node, std::span<const wire::SitePace> sites, Time now);
  void on_heartbeat(NodeId node, Time now);
  void forget(NodeId node);

  struct Change {
    NodeId node;
    bool avoided = false;  ///< whether the node gets no new work from now on
    std::string why;       ///< shown with the node; empty: it is as fast as others
    bool said = false;     ///< whether the change is worth a log line
  };
  std::vector<Change> on_tick(Time now);
  /// Returns when on_tick() is due; Time::max(): not before the next report or late heartbeat.
  Time next_tick() const noexcept { return looks_ ? next_look_ : Time::max(); }

 private:
  struct Report {
    Time at{};
    double ns = 0;  ///< mean run time of its tasks
  };
  enum class State : std::uint8_t { fast, slow, tried };
  struct Node {
    std::map<wire::FunctionKey, std::deque<Report>> functions;
    std::optional<Time> heard;
    std::deque<Duration> lateness;
    State state = State::fast;
    bool by_heartbeats = false;
    Time tried_at{};   ///< slow: when it is tried
    Duration trial{};  ///< how long it was or is avoided; the next time twice as long
  };
  struct Figure {
    double ratio = 0;
    std::size_t nodes = 0;  ///< how many were compared
  };
  std::map<NodeId, Figure> figures(Time now);
  std::map<NodeId, Duration> late_ones() const;

  SlowNodesOptions options_;
  std::map<NodeId, Node> nodes_;
  Time next_look_{};
  bool looks_ = false;  ///< a comparison is due: something is new, or a node is slow
};

}  // namespace troupe::control
