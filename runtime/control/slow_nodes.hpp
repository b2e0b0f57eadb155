/// Which nodes are slow: a node whose tasks take three times as long as the median node's, for the
/// same functions, or whose heartbeats come late again and again. A plain state machine.
///
///     slow.on_pace(node, report.sites, now);
///     slow.on_heartbeat(node, now);
///     for (const SlowNodes::Change& change : slow.on_tick(now)) say(change.why);
///
/// Of each function a node's figure is the median of its last eight reports, each the mean of
/// half a second or more, so one long task changes nothing. It is compared with the median of all
/// nodes that have a figure, at least three; a node is as slow as the median of its functions says.
/// Fewer than half of the nodes can be slow, and functions that differ by less than `margin` do not
/// count. A node that is slow gets no new work, so nothing says when it is fast again but tasks
/// that must run there: after ten seconds it is tried, and again after twice as long when it is
/// slow then, up to 160 s.
///
/// It cannot tell a slow node from one on which a function always gets larger arguments than
/// elsewhere, and sees nothing of tasks that have not ended.
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
  double slow_from = 3;    ///< times the median
  double fast_below = 2;   ///< ... and fast again
  std::size_t nodes = 3;   ///< that have a figure of a function; with fewer nothing is compared
  std::size_t enough = 4;  ///< reports of a node and function; fewer say nothing
  std::size_t most = 8;    ///< reports that count
  Duration keep = std::chrono::seconds(30);  ///< how long they do
  Duration margin = std::chrono::milliseconds(2);
  Duration heartbeat = std::chrono::seconds(1);
  Duration late = std::chrono::milliseconds(500);  ///< a heartbeat, from which on it is slow
  Duration look = std::chrono::milliseconds(500);  ///< between two looks at everything
  Duration first_trial = std::chrono::seconds(10), last_trial = std::chrono::seconds(160);
  std::size_t functions = 64;  ///< of one node
};

class SlowNodes {
 public:
  explicit SlowNodes(SlowNodesOptions options = {}) : options_(options) {}

  void on_pace(NodeId node, std::span<const wire::SitePace> sites, Time now);
  void on_heartbeat(NodeId node, Time now);
  void forget(NodeId node);

  struct Change {
    NodeId node;
    bool avoided = false;  ///< nothing new goes there from now on; else it may
    std::string why;       ///< what is shown of the node; empty: nothing, it is as fast as others
    bool said = false;     ///< it is news: `why`, or that it is fast again
  };
  std::vector<Change> on_tick(Time now);
  /// When on_tick() is due; Time::max(): when there is something new to look at.
  Time next_tick() const noexcept { return looks_ ? next_look_ : Time::max(); }

 private:
  struct Report {
    Time at{};
    double ns = 0;  ///< mean of its tasks
  };
  enum class State : std::uint8_t { fast, slow, tried };
  struct Node {
    std::map<wire::FunctionKey, std::deque<Report>> functions;
    std::optional<Time> heard;
    std::deque<Duration> lateness;
    State state = State::fast;
    bool by_heartbeats = false;
    Time tried_at{};   ///< slow: when it is tried
    Duration trial{};  ///< how long it is avoided when it is found slow again
  };
  struct Figure {
    double ratio = 0;
    std::size_t nodes = 0;  ///< that were compared
  };
  std::map<NodeId, Figure> figures(Time now);
  std::map<NodeId, Duration> late_ones() const;

  SlowNodesOptions options_;
  std::map<NodeId, Node> nodes_;
  Time next_look_{};
  bool looks_ = false;  ///< something is new, or a node is not fast
};

}  // namespace troupe::control
