/// TrialHosts: the processes that run the attempts of an experiment, on the nodes of the cluster.
///
///     TrialHosts hosts(ctx, options, spawn);
///     hosts.begin(setup, params, checkpoints_node);
///     while (auto heard = hosts.next(deadline)) …      // messages of a trial, or its death
///     hosts.end(setup.number, last.reusable);
///
/// A host takes one attempt after the other. Admission says where; this class spawns, orders and
/// kills. One thread uses it.
#pragma once

#include "troupe/actors/loop_actor/loop_controller.hpp"
#include "troupe/tune/internal/admission.hpp"
#include "troupe/tune/optimize.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe::tune {

class TrialHosts {
 public:
  struct Heard {
    int trial = -1;
    int attempt = 0;
    std::vector<internal::TrialMessage> messages;
    std::optional<Error> death;  ///< of the host; the trial's attempt has ended
    bool node_lost = false;      ///< with its node
  };

  /// Throws Infeasible when no node can hold a trial, nor the cluster its gang.
  TrialHosts(Context ctx, const ExperimentOptions& options, const internal::SpawnTrial& spawn);
  TrialHosts(const TrialHosts&) = delete;
  TrialHosts& operator=(const TrialHosts&) = delete;
  /// Kills all hosts.
  ~TrialHosts();

  const Admission& admission() const noexcept { return admission_; }
  /// Looks at the cluster when that is due, and ends hosts that have long been idle.
  void look(Time now);
  /// When look() is due.
  Time next_look() const;
  bool has_many_nodes() const noexcept { return many_nodes_; }

  /// Begins an attempt. `prefer`: the node to use if it has room. Returns whether the attempt runs
  /// in a process that is there already.
  bool begin(internal::TrialSetup setup, const Point& params, std::optional<NodeId> prefer);
  void reply(int trial, internal::Verdict verdict);
  /// Ends the trial's attempt. `keeps`: its host may take another one. Otherwise it is killed.
  void end(int trial, bool keeps);
  /// Returns the node on which the trial runs, once that is known.
  std::optional<NodeId> node_of(int trial) const;
  /// Returns whether the attempt waits for room, for its process or for its gang.
  bool waits(int trial) const;
  /// Returns what a trial says next. Blocks until `until` at most; then returns nothing, as it may
  /// also do earlier.
  std::optional<Heard> next(Time until);

 private:
  struct Host {
    internal::TrialHandle handle;
    int trial = -1;  ///< -1: idle
    int attempt = 0;
    int attempts = 0;  ///< that it has taken
    std::optional<NodeId> node;
    Time idle_since{};
  };
  /// A host that died on another node, which may be dead, too. A probe finds out.
  struct Doubt {
    Heard heard;
    NodeId node;
    Time until;  ///< then the node counts as lost
  };
  void kill(int host);
  std::optional<Heard> died(int host, Heard heard);
  std::optional<Heard> judge(int host, bool node_lost);
  std::optional<Heard> judge_lost();
  int host_of(int trial) const;

  Context ctx_;
  const ExperimentOptions& options_;
  const internal::SpawnTrial& spawn_;
  Admission admission_;
  Time looked_{};
  bool has_looked_ = false;
  bool many_nodes_ = false;
  std::map<int, Host> hosts_;
  std::map<int, int> running_;   ///< hosts by trial
  std::map<int, Doubt> doubts_;  ///< by host
  int spawned_ = 0;
  LoopController<internal::TrialMessage> loops_;
};

}  // namespace troupe::tune
