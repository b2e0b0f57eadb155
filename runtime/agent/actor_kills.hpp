/// The actors that processes of this node have killed. Says each kill to control, and again to each
/// later control until the kill is over or refused. A plain state machine of ActorHost.
///
///     std::uint64_t life = kills.kill({actor, job, killer}, may_restart, newest, next_request);
///     for (ProcessIndex killer : kills.heard_of(actor, life)) …   // told which life ends
///     if (kills.asked(request)) kills.refused(request);           // control's answer
///     kills.say_ends_again(); kills.say_lives_again();            // to a new control
///     kills.forget(actor);                                        // the actor is dead
///
/// A kill ends the actor or, with `may_restart`, one life. Control judges each kill by the job of
/// the process that killed: it may refuse the kill of one job and accept that of another.
///
/// Invariants: KILLS-1 A kill of one life names it when it is sent, so a later control does not end
/// the life that followed. KILLS-2 One request per job and actor waits for control's answer.
#pragma once

#include "troupe/runtime/agent/control_port.hpp"
#include "troupe/runtime/base/ids.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace troupe::agent {

class ActorKills {
 public:
  struct Kill {
    ActorId actor;
    JobId job;            ///< that of the killing process; zero: the agent itself kills
    ProcessIndex killer;  ///< is told which life ends; 0: nobody is
  };
  explicit ActorKills(ControlPort& control) : control_(control) {}

  /// Kills. `newest`: the newest life of which control has told. Returns the life that ends, of
  /// which the killer is to be told now; 0: the actor ends, or heard_of() tells of the life.
  /// Increments `next_request` if control may refuse the kill.
  std::uint64_t kill(const Kill& kill, bool may_restart, std::uint64_t newest,
                     std::uint64_t& next_request);
  /// Control knows of this life, alive or about to be. A kill that waited for a first life now names
  /// it; a kill of an earlier life is over. Returns the processes to tell that this life ends.
  std::vector<ProcessIndex> heard_of(ActorId actor, std::uint64_t life);
  /// Returns whether this request is a kill that control may still refuse.
  bool asked(std::uint64_t request) const { return asked_.count(request) != 0; }
  /// Forgets a kill that control has refused, and returns it. Precondition: asked(request).
  Kill refused(std::uint64_t request);
  /// Returns whether an end of the actor, or of one of its lives, is awaited.
  bool awaits(ActorId actor) const { return ends_.count(actor) != 0 || lives_.count(actor) != 0; }
  void forget(ActorId actor);

  /// Says all kills of actors again.
  void say_ends_again();
  /// Says all kills of lives again.
  void say_lives_again();

 private:
  void say(ActorId actor, bool may_restart, std::uint64_t life);
  void forget_jobs(ActorId actor);

  ControlPort& control_;
  std::set<ActorId> ends_;  ///< killed for good, not known to be dead
  /// Actors that were killed and may be restarted → the life that is to end and is not known to be
  /// over; 0: the first life that control will tell of.
  std::map<ActorId, std::uint64_t> lives_;
  std::map<ActorId, std::set<JobId>> jobs_;               ///< whose processes have killed it
  std::map<std::uint64_t, Kill> asked_;                   ///< by request, those not refused
  std::map<ActorId, std::vector<ProcessIndex>> killers_;  ///< to be told which life that 0 became
};

}  // namespace troupe::agent
