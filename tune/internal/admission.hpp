/// Admission: decides on which node the next attempt of a trial runs, and how many fit. A plain
/// state machine.
///
///     Admission admission(options.per_trial, Admission::Policy::spread);
///     admission.nodes(ctx.cluster().nodes, now);
///     experiment.room(admission.room(now), now);            // attempts that fit in all
///     Admission::Choice where = admission.choose(checkpoints_node, now);
///     admission.spawned(7, where.node);                     // process 7 runs the attempt
///     admission.ready(7, node);
///     admission.idle(7);                                    // the attempt is over, 7 stays
///     admission.gone(7, now);
///
/// A process that runs attempts (a host) holds the amounts of one attempt, also while it is idle.
/// What other programs hold is the difference between a node's free amounts and what hosts hold.
/// The free amounts are up to two seconds old, so a host that came or went since then counts in
/// favour of room.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/context.hpp"
#include "troupe/tune/per_trial.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe::tune {

/// Throws InvalidArgument for amounts that are negative or not finite, and for fractions above one
/// GPU.
void check(const PerTrial& need);

class Admission {
 public:
  enum class Policy : std::uint8_t {
    spread,  ///< the node with the least use
    pack,    ///< the node with the greatest use that has room
  };
  struct Choice {
    int host = -1;               ///< an idle host to use; -1: spawn one
    std::optional<NodeId> node;  ///< where to spawn; nothing: the cluster's scheduler chooses
  };

  Admission(const PerTrial& need, Policy policy);

  /// The nodes of the cluster with what is free now. The first call decides whether gangs spread
  /// over nodes.
  void nodes(std::vector<NodeInfo> nodes, Time now);
  void spawned(int host, std::optional<NodeId> node);
  /// The host's process runs there.
  void ready(int host, NodeId node);
  /// The ranks of the host's gang are ready. Until then a gang over nodes waits.
  void gathered(int host);
  void idle(int host);
  void resumed(int host);
  void gone(int host, Time now);

  /// Returns why no attempt ever fits, as a sentence; empty when it could.
  std::string never() const;
  /// Returns how many attempts fit when nothing else runs.
  int slots() const;
  /// Returns how many attempts fit now, those that run included. At least 1. Where the needs name
  /// labels, or gangs spread over nodes, nobody knows what fits: one attempt at a time waits.
  int room(Time now) const;
  /// Chooses for the next attempt. `prefer`: the node with its checkpoint.
  Choice choose(std::optional<NodeId> prefer, Time now) const;
  /// Returns whether this node can take an attempt at some time: it lives and does not drain.
  bool accepts(NodeId node) const;
  /// Returns whether the cluster has given this node up: nothing on it answers any more.
  bool is_lost(NodeId node) const;
  bool waits(int host) const;
  /// Returns the amounts of an attempt, e.g. "2 CPUs and 1 GPU".
  std::string needs() const;
  bool over_nodes() const noexcept { return over_nodes_; }
  /// Returns the amounts that a host reserves.
  const PerTrial& host_need() const noexcept { return host_; }

 private:
  struct Host {
    std::optional<NodeId> node;
    bool busy = true, ready = false, gathered = false;
  };
  struct Site {
    const NodeInfo* node = nullptr;
    int total = 0;   ///< hosts that fit when nothing else runs
    int others = 0;  ///< hosts for which other programs leave no room
    int busy = 0, all = 0;
    int idle = -1;  ///< an idle host
    int fits() const { return std::max(total - others - all, 0); }
  };
  std::vector<Site> sites(Time now) const;
  int busy() const;
  bool one_waits() const;
  bool unknown() const noexcept { return over_nodes_ || need_.labels.size() > 0; }
  bool gang_fits() const;

  const PerTrial need_;
  const Policy policy_;
  PerTrial host_;  ///< what a host reserves
  bool over_nodes_ = false, looked_ = false;
  std::vector<NodeInfo> nodes_;
  std::map<int, Host> hosts_;
  std::deque<std::pair<Time, NodeId>> gone_;  ///< hosts that ended lately
};

}  // namespace troupe::tune
