/// Control's table of actors: where each lives, its name, its restarts and its end. A plain state
/// machine; Service feeds it the agents' messages.
///
///     Directory actors({}, store_epoch);
///     auto out = actors.on_spawn(request, now);          // PlaceActor once it is durable
///     out = actors.on_placed(id, incarnation, node, node_epoch);     // StartActorAt to its agent
///     out = actors.on_started(id, incarnation, node, node_epoch, worker);  // ActorUpdateTo, to all
///     out = actors.on_node_dead(node, node_epoch, why, now);         // restarts what it had
///
/// States: placing (PlaceActor is out, then StartActorAt) -> alive -> restarting (placing again, or
/// waiting for it) -> dead. An actor is pending while a new control does not know whether a life of
/// it exists. Every placing gets a new incarnation: control's epoch in the high half, a counter in
/// the low half. So no two lives of any actor share one. An agent refuses a StartActorAt whose high
/// half is below the control epoch that it obeys.
///
/// Durable: detached actors, all names, and tombstones. After a restart of control the other actors
/// are rebuilt from `NodeHosts`: the lives that each agent hosts, and the lives that ended there
/// and of which the agent has not heard what followed. The nodes of the earlier control are
/// *awaited* until each has sent NodeHosts or is dead. Until then no actor of the earlier control
/// is restarted, and unknown actors count as pending.
///
/// An actor restarts at most `max_restarts` times within `restart_window`. A node's death while an
/// actor is being placed there does not count. When the constructor of the first life throws, no
/// other life follows; in a later life that is a death like any other. After short lives a pause
/// follows (RestartPace). The window does not count the pause, and watchers are told why they wait.
/// An actor that cannot be restarted is dead with an ActorDied that carries the cause. The
/// directory remembers the last ten thousand dead actors.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/control/actor_messages.hpp"
#include "troupe/runtime/control/actor_records.hpp"
#include "troupe/runtime/control/deferred_requests.hpp"
#include "troupe/runtime/control/ending_jobs.hpp"
#include "troupe/runtime/control/output.hpp"
#include "troupe/runtime/control/restart_pace.hpp"
#include "troupe/runtime/control/tombstones.hpp"
#include "troupe/runtime/control/unknown_actors.hpp"

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::control {

struct DirectoryOptions {
  std::size_t dead_kept = 10'000;
  RestartPaceOptions pace;
  /// A watch of an actor may arrive before its spawn, which comes from another node. When all nodes
  /// have been heard for this long without a spawn, nobody has made the actor.
  Duration unknown_kept = std::chrono::seconds(5);
  /// How long a spawn waits for the end of an actor that has its name.
  Duration ending_name_kept = std::chrono::seconds(8);
  /// The longest wait for the spawn of an unknown actor. A node that was cut off or asleep is back
  /// within this time or has been declared dead.
  Duration unknown_longest = std::chrono::seconds(15);
};

class Directory {
 public:
  using Out = Output<DirectoryEvent>;
  Directory(DirectoryOptions options, Epoch control_epoch);
  /// Reads detached actors, names and tombstones. `awaited`: the nodes (and their epochs) of the
  /// earlier control, which may host actors.
  static Result<Directory> recover(Store& store, DirectoryOptions options,
                                   std::vector<std::pair<NodeId, Epoch>> awaited);

  /// Begins new lives of the detached actors when no node is awaited. Call it once, before any
  /// other.
  Out start();
  /// Registers an actor and takes its name atomically. When another actor has the name, the reply
  /// names that one (get_if_exists) or is invalid_argument. An actor without handles keeps its name
  /// until its process has ended: the spawn waits, and is `unavailable` after ending_name_kept.
  /// Repeating a request is harmless. A request that an earlier control had (`again`) waits until
  /// no node is awaited.
  Out on_spawn(const SpawnActor& message, Time now);
  Out on_placed(ActorId actor, std::uint64_t incarnation, NodeId node, Epoch epoch);
  /// No node can ever take the actor: it is dead with this cause.
  Out on_unplaceable(ActorId actor, std::uint64_t incarnation, const Error& cause);
  Out on_started(ActorId actor, std::uint64_t incarnation, NodeId node, Epoch epoch,
                 ProcessIndex worker, Time now);
  /// The agent could not start the life. Without `cause` it had no worker: the actor is placed
  /// again. With `cause` the constructor threw or (of code infeasible) the node can never take it:
  /// the actor is dead.
  Out on_start_failed(ActorId actor, std::uint64_t incarnation, const std::optional<Error>& cause);
  /// The life's process died, or the constructor of a later life threw. `intended`: the actor was
  /// told to end or ended itself.
  Out on_died(ActorId actor, std::uint64_t incarnation, const Error& cause, bool intended,
              Time now);
  /// Kills the actor: for good, or (`may_restart`) only its present life. `life`, with may_restart:
  /// a later life than this is not killed; 0: whichever life there is. A final kill of an unknown
  /// actor is remembered until the actor is spawned or counts as not made. A final kill is stored
  /// as a tombstone until the process has ended, no node may report an earlier life, and the
  /// actor's maker has heard of the death. So no later control adopts a life of it or begins one.
  Out on_kill(ActorId actor, bool may_restart, Time now, std::uint64_t life = 0);
  /// No handle of the actor is left: it ends when it has done the calls that it received. Stored as
  /// a tombstone, as a final kill is. Detached actors stay.
  Out on_handles_gone(ActorId actor);
  /// The job's driver has ended: its actors end as EndingJobs says, and further spawns are refused.
  /// An actor that is being made is still made, since the destructor of another may call it.
  /// JobIdle follows once. Detached actors stay.
  Out on_job_ending(JobId job, Time now);
  /// Kills the job's actors that are left.
  Out on_job_ended(JobId job);
  /// Takes a node's list of actors. A known actor of the node that is missing in it has died. The
  /// node is not awaited any more. A list that was sent to an earlier control is ignored, since a
  /// start by that control may still be on its way. (The caller also calls on_job_ended for jobs
  /// of listed actors that run no more.)
  Out on_node_hosts(const NodeHosts& message, Time now);
  /// A node has registered (again). Before its NodeHosts it repeats the spawns of which it does not
  /// know whether the actor lives or is dead. `number`: of the registration, as in its NodeHosts.
  void on_registered(NodeId node, std::uint64_t number);
  /// Messages to the node may be lost, StartActorAt among them; its NodeHosts will tell.
  void on_reset(NodeId node);
  Out on_node_dead(NodeId node, Epoch epoch, const std::string& why, Time now);

  Out on_find(NodeId from, std::uint64_t request, const std::string& name_space,
              const std::string& name);
  /// Sends the watcher an ActorLocation now and at every change, until the actor is dead. An
  /// unknown actor is pending until no node can have made it (see DirectoryOptions), then dead.
  Out on_watch(ActorId actor, NodeId watcher, Time now);
  /// Ends a watch. A node that is its maker, or that reported the end of a life, thereby also says
  /// that it has heard what followed and will not repeat the spawn or the report.
  Out on_unwatch(ActorId actor, NodeId watcher);
  /// Tells the directory since when no node has been silent. Until the first call none is.
  void all_heard_since(Time since) noexcept { unknown_.all_heard_since(since); }
  Out on_tick(Time now);
  std::optional<Time> next_deadline() const;

  std::optional<ActorLocation> find(ActorId actor) const;
  /// Null when the actor is not known.
  std::shared_ptr<const ActorSpec> spec(ActorId actor) const;
  /// Returns where this life was placed; zero: another life is the present one, or it has no place.
  NodeId host_of(ActorId actor, std::uint64_t life) const;
  /// Returns how often the actor was restarted within its window.
  std::uint32_t restarts(ActorId actor) const;
  std::vector<std::pair<ActorSpec, ActorLocation>> list() const;
  /// Returns how many actors live or start on each node. O(actors).
  std::map<NodeId, std::uint32_t> hosted() const;
  bool awaits_nodes() const noexcept { return !awaited_.empty(); }

 private:
  struct Actor {
    std::shared_ptr<const ActorSpec> spec;
    ActorState state = ActorState::pending;
    std::uint64_t incarnation = 0;
    bool started_once = false;
    NodeId node;  ///< while placing (once chosen) and alive
    Epoch epoch = 0;
    ProcessIndex worker;
    std::deque<Time> restarts;
    RestartPace pace;
    std::optional<Time> place_at;  ///< set during a pause between lives
    Duration pause{};              ///< its length
    /// How its last life ended, until the next one lives.
    std::shared_ptr<const ErrorInfo> trouble;
    /// Lives up to this one were killed with may_restart. One that a node still reports must end.
    std::uint64_t killed_life = 0;
    /// Nothing is known but a life that has ended; an awaited node may host a later one.
    bool only_ended = false;
    /// The cause of that life's end. It is judged when no node is awaited.
    std::optional<std::pair<std::string, Error>> end;
    std::set<NodeId> watchers;
    /// Nodes on which an earlier life ended. Each reports that end to a later control again, until
    /// it has heard what followed.
    std::set<NodeId> reporters;
    ActorMaker maker;
    std::shared_ptr<const ErrorInfo> error;
  };
  static constexpr const char* kKilled = "it was killed";
  static constexpr const char* kUnheld = "nobody holds a handle to it any more";
  Actor* current(ActorId id, std::uint64_t incarnation);
  ActorLocation location_of(ActorId id, const Actor& actor) const;
  void place(Actor& actor, Out& out);
  void fail(Actor& actor, const std::string& what, const Error& cause, bool counts, Out& out,
            Time now);
  void place_later(Actor& actor, Duration pause, Out& out, Time now);
  void note_end(Actor& actor, const Error& cause, Time now) const;
  void forget_due(Actor& actor);
  void mark_dead(Actor& actor, const std::string& why, const std::optional<Error>& cause, Out& out);
  enum class Stop : std::uint8_t { gracefully, for_good, may_restart };
  void stop(const Actor& actor, const std::string& why, Out& out, Stop how = Stop::for_good) const;
  void end(Actor& actor, Stop how, Out& out);
  void tell(Actor& actor, Out& out);
  void adopt(const HostedActor& hosted, NodeId node, Epoch epoch, Out& out, Time now);
  void stop_awaiting(NodeId node, Epoch epoch, Out& out, Time now);
  void resolve_unclaimed(Out& out, Time now);
  void reply_error(const SpawnActor& message, const Error& error, Out& out) const;
  void describe(ActorReply& reply) const;
  bool is_unclaimed(const ActorName& name) const;
  void answer_waiting(Out& out, Time now);
  void add_tombstone(const Actor& actor, bool may_live, Out& out, Stop how = Stop::for_good);
  void life_ended(ActorId id, std::uint64_t life, bool told_again, Out& out);
  void node_spoke(const NodeHosts& message, std::set<ActorId> there, std::set<ActorId> ended,
                  Out& out);
  UnknownActors::Asked take_unknown(Actor& actor);
  bool is_ending(const SpawnActor& message) const;
  void free_names(Out& out);
  void refuse(const std::vector<SpawnActor>& spawns, const Error& why, Out& out) const;
  static bool belongs_to(const ActorSpec& spec, JobId job);
  bool is_of_ending_job(const SpawnActor& message, Out& out) const;
  void refuse_spawns(JobId job, Out& out);
  void end_with_job(Actor& actor, Out& out);
  std::set<ActorId> actors_of(JobId job) const;
  bool is_over(ActorId id, const Actor& actor) const;
  void look_at_ending_job(JobId job, Out& out);
  void look_at_ending_jobs(Out& out);
  void may_be_over(ActorId id, Out& out);
  void end_jobs(Out& out, Time now);
  void expire_unknown(Time now, Out& out);

  DirectoryOptions options_;
  Epoch control_epoch_;
  std::uint64_t next_incarnation_;
  std::map<ActorId, Actor> actors_;
  std::map<ActorName, ActorId> names_;
  std::deque<ActorId> dead_;
  std::set<std::pair<NodeId, Epoch>> awaited_;
  std::map<NodeId, std::uint64_t> registrations_;  ///< the number of each node's last one
  std::set<std::pair<Time, ActorId>> due_;         ///< every actor with a place_at
  Tombstones tombstones_;
  UnknownActors unknown_;
  DeferredRequests deferred_;
  /// Names of actors without handles whose processes have not ended.
  std::map<ActorName, ActorId> ending_;
  EndingJobs ending_jobs_;
  Time latest_{};  ///< when the last spawn arrived
};

}  // namespace troupe::control
