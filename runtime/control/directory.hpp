/// Where every actor is, and what happens when it is not: names, restarts, lifetimes. A plain state
/// machine of control.
///
///     Directory actors({}, store_epoch);
///     auto out = actors.on_spawn(request, now);          // PlaceActor once it is durable
///     out = actors.on_placed(id, incarnation, node, node_epoch);     // StartActor to its agent
///     out = actors.on_started(id, incarnation, node, node_epoch, worker);   // ActorUpdate to all
///     out = actors.on_node_dead(node, node_epoch, why, now);         // restarts what it had
///
/// States: pending (durable soon) -> placing (PlaceActor is out, then StartActor) -> alive ->
/// restarting (placing again) -> dead. Every placing gets a new incarnation, control's epoch in the
/// high half and a counter in the low one, so that no two lives of any actor ever share one; an
/// agent refuses a StartActor whose high half is below the control epoch that it obeys.
///
/// Durable: detached actors and all names. Other actors are rebuilt after a restart of control from
/// what the agents say they host and what has ended there with a fate that they have not heard;
/// until every node of before has spoken or is dead, nothing of an earlier control is restarted and
/// unknown actors count as pending.
///
/// A restart needs a free place in `max_restarts` within `restart_window`; a node's death while an
/// actor is being placed there does not count. A first life whose constructor throws is the last
/// one; a later one has died like any other. Lives that end soon are followed by a pause
/// (RestartPace), which the window does not count, and watchers are told why they wait. What cannot
/// be restarted is dead with an ActorDied that carries the cause; the last ten thousand of these
/// are remembered.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/control/ending_jobs.hpp"
#include "troupe/runtime/control/output.hpp"
#include "troupe/runtime/control/restart_pace.hpp"
#include "troupe/runtime/scheduling/policy.hpp"

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::control {

/// All that is needed to make the actor anywhere.
struct ActorSpec {
  ActorId id;
  JobId job;
  std::string name;  ///< empty: none
  std::string name_space;
  std::string class_name;
  std::string creation;  ///< the constructor's call; opaque here
  ObjectId lifetime;     ///< the object that its handles count ...
  NodeId owner;          ///< ... and the node that keeps these counts
  scheduling::ResourceDemand demand;
  std::int32_t max_restarts = 0;                       ///< -1: without limit
  Duration restart_window = std::chrono::seconds(60);  ///< zero: ever
  bool detached = false;
};

enum class ActorState : std::uint8_t { pending = 0, placing, alive, restarting, dead };
std::string_view name_of(ActorState state) noexcept;

/// What watchers are told.
struct ActorLocation {
  ActorId actor;
  ActorState state = ActorState::pending;
  std::uint64_t incarnation = 0;
  NodeId node;  ///< alive: where
  Epoch epoch = 0;
  std::uint64_t worker = 0;
  /// Dead: why. Neither dead nor alive: how its last life ended, if it had one.
  std::shared_ptr<const ErrorInfo> error;
  Duration retry_in{};  ///< its next life waits for so long from when this was said
};

// --- in

struct SpawnActor {
  NodeId from;
  std::uint64_t request = 0;
  ActorSpec spec;
  bool get_if_exists = false;
  bool again = false;  ///< it was sent to an earlier control, which may have begun a life of it
};
/// One actor of an agent that has registered again.
struct HostedActor {
  ActorSpec spec;
  std::uint64_t incarnation = 0;
  std::uint64_t worker = 0;    ///< 0: it is being made, and a word of its start follows
  std::uint32_t restarts = 0;  ///< so far, within its window
  /// Its process is gone, and nobody has told the agent of what followed: its ActorGone comes
  /// again.
  bool ended = false;
};
/// Agent -> control, each time it has been registered, after its news of starts: all that it hosts.
/// Of several pages only the whole means something.
struct NodeHosts {
  NodeId node;
  Epoch epoch = 0;
  /// Of the control that it obeys (Registered's): from then on it refuses starts by older ones.
  Epoch control_epoch = 0;
  std::vector<HostedActor> actors;
  std::uint32_t page = 0;
  bool more = false;         ///< the next page follows
  std::uint64_t number = 0;  ///< of the Registered that it follows
};

// --- out

/// Choose a node for this demand; on_placed or on_unplaceable answers.
struct PlaceActor {
  ActorId actor;
  std::uint64_t incarnation = 0;
  scheduling::ResourceDemand demand;
};
/// Always answered: started, or start failed (also by an agent that refuses it for its epochs).
struct StartActorAt {
  NodeId node;
  Epoch epoch = 0;
  std::shared_ptr<const ActorSpec> spec;
  std::uint64_t incarnation = 0;
  bool restarted = false;
  std::uint32_t restarts = 0;  ///< so far, within its window
};
/// The agent reports the worker's death as it does any other.
struct StopActorAt {
  NodeId node;
  Epoch epoch = 0;
  ActorId actor;
  std::uint64_t incarnation = 0;
  bool graceful = false;  ///< it may finish what it was asked; else it is killed
  std::string why;
  /// No other life follows, whatever control hears of its end: it is told as intended.
  bool for_good = false;
};
/// Answer to a spawn or a find.
struct ActorReply {
  NodeId to;
  std::uint64_t request = 0;
  ActorId actor;  ///< zero: not found, or an error
  std::string class_name;
  ObjectId lifetime;  ///< as in its ActorSpec
  NodeId owner;
  bool created = false;  ///< false: get_if_exists found it
  std::shared_ptr<const ErrorInfo> error;
};
struct ActorUpdateTo {
  NodeId watcher;
  ActorLocation location;
};
/// For people: lives of an actor end again and again. Said at the 4th, 8th, 16th … in a row.
struct ActorTrouble {
  std::string line;
};
/// Answer to on_job_ending: no actor of the job lives that is not detached, or the time is over.
struct JobIdle {
  JobId job;
};
using DirectoryEvent = std::variant<PlaceActor, StartActorAt, StopActorAt, ActorReply,
                                    ActorUpdateTo, ActorTrouble, JobIdle>;

struct DirectoryOptions {
  std::size_t dead_kept = 10'000;
  RestartPaceOptions pace;
  /// Who asks about an actor may be heard before who made it: when all nodes have been heard for
  /// this long, nobody has made the actor.
  Duration unknown_kept = std::chrono::seconds(5);
  /// A spawn waits so long for the end of an actor that has its name.
  Duration ending_name_kept = std::chrono::seconds(8);
  /// Who was cut off or asleep is back after this long, or has been declared dead.
  Duration unknown_longest = std::chrono::seconds(15);
};

class Directory {
 public:
  using Out = Output<DirectoryEvent>;
  Directory(DirectoryOptions options, Epoch control_epoch);
  /// Reads detached actors and names. `awaited`: the nodes (and epochs) of the earlier life, which
  /// may host actors.
  static Result<Directory> recover(Store& store, DirectoryOptions options,
                                   std::vector<std::pair<NodeId, Epoch>> awaited);

  /// Call once, before any other: makes the detached actors anew when no node is awaited.
  Out start();
  /// Registers an actor. The name is taken atomically: with get_if_exists the reply names the
  /// holder, otherwise it is invalid_argument. While the process of an actor that nobody holds any
  /// more has not ended, the name is that one's: the spawn waits, and is `unavailable` after a
  /// while. Repeating a request is harmless: one that an earlier control had waits until every node
  /// of before has said whether it has a life of it.
  Out on_spawn(const SpawnActor& message, Time now);
  Out on_placed(ActorId actor, std::uint64_t incarnation, NodeId node, Epoch epoch);
  /// No node can ever take it: dead with this cause.
  Out on_unplaceable(ActorId actor, std::uint64_t incarnation, const Error& cause);
  Out on_started(ActorId actor, std::uint64_t incarnation, NodeId node, Epoch epoch,
                 std::uint64_t worker, Time now);
  /// The agent could not give it a worker: placed again. `cause` set: its constructor threw, or (of
  /// code infeasible) the node can never take it: dead.
  Out on_start_failed(ActorId actor, std::uint64_t incarnation, const std::optional<Error>& cause);
  /// Its process died (or it asked to exit: intended), or the constructor of a later life threw.
  Out on_died(ActorId actor, std::uint64_t incarnation, const Error& cause, bool intended,
              Time now);
  /// A final kill of an actor that is not known counts if it is spawned before it is called
  /// unknown. That of one that may live is written down until it has ended, and any death until no
  /// node tells of an earlier life and who made the actor has heard: no later control takes it in
  /// or makes it anew.
  /// `life`, of one that may be restarted: no later life ends; 0: the one that there is.
  Out on_kill(ActorId actor, bool may_restart, Time now, std::uint64_t life = 0);
  /// Nobody holds a handle any more: it ends when it has done what it was asked. Written down until
  /// it has, as a kill is.
  Out on_handles_gone(ActorId actor);
  /// Its driver has ended: its actors end as EndingJobs says, and no further one is asked for. One
  /// that is being made may be told something by the destructor of another, so it is made. JobIdle
  /// follows once. Detached ones stay.
  Out on_job_ending(JobId job, Time now);
  /// Whoever of its actors is left is killed.
  Out on_job_ended(JobId job);
  /// What the node was believed to host and does not has died. Ends waiting for the node. Ignored
  /// when it was sent to an earlier control: a start by that one may still be on its way. (The
  /// caller also ends jobs that are not running any more: on_job_ended.)
  Out on_node_hosts(const NodeHosts& message, Time now);
  /// A node has registered (again): it asks again for what it does not know to live or be dead,
  /// before it says what it hosts. `number`: of the registration, as in its NodeHosts.
  void on_registered(NodeId node, std::uint64_t number);
  /// What was sent to the node may be lost: of starts it will say whether they were.
  void on_reset(NodeId node);
  Out on_node_dead(NodeId node, Epoch epoch, const std::string& why, Time now);

  Out on_find(NodeId from, std::uint64_t request, const std::string& name_space,
              const std::string& name);
  /// The watcher is told now and at every change, until the actor is dead. An actor that is not
  /// known is pending until nobody can have made it (see DirectoryOptions), then dead.
  Out on_watch(ActorId actor, NodeId watcher, Time now);
  /// Its node also says so when it tells nobody any more of a life that ended there.
  Out on_unwatch(ActorId actor, NodeId watcher);
  /// No node has been silent since then. (Until it is told, none is.)
  void all_heard_since(Time since) noexcept { all_heard_since_ = since; }
  Out on_tick(Time now);
  std::optional<Time> next_deadline() const;

  std::optional<ActorLocation> find(ActorId actor) const;
  /// Null when the actor is not known.
  std::shared_ptr<const ActorSpec> spec(ActorId actor) const;
  /// Where this life of it was placed; zero: it is not the one that is known, or nowhere.
  NodeId host_of(ActorId actor, std::uint64_t life) const;
  /// How often it was restarted, within its window.
  std::uint32_t restarts(ActorId actor) const;
  std::vector<std::pair<ActorSpec, ActorLocation>> list() const;
  /// How many live on each node, or start there. O(actors).
  std::map<NodeId, std::uint32_t> hosted() const;
  bool awaits_nodes() const noexcept { return !awaited_.empty(); }

 private:
  using Name = std::pair<std::string, std::string>;
  /// Who has asked for an actor, and asks a later control again, until it is known to have heard
  /// that the actor lives or is dead.
  struct Maker {
    NodeId node;
    bool asked = false;  ///< since it registered last
    bool spoke(NodeId who) const { return node == who && !asked; }
  };
  struct Actor {
    std::shared_ptr<const ActorSpec> spec;
    ActorState state = ActorState::pending;
    std::uint64_t incarnation = 0;
    bool started_once = false;
    NodeId node;  ///< while placing (once chosen) and alive
    Epoch epoch = 0;
    std::uint64_t worker = 0;
    std::deque<Time> restarts;
    RestartPace pace;
    std::optional<Time> place_at;
    Duration pause{};  ///< before place_at
    /// How its last life ended, until the next lives.
    std::shared_ptr<const ErrorInfo> trouble;
    /// A life up to this one that a node tells of is to end, and may be followed by another.
    std::uint64_t killed_life = 0;
    bool only_ended = false;  ///< all that is known of it; a node that is awaited may have more
    /// Of what that life died; judged when nobody is awaited.
    std::optional<std::pair<std::string, Error>> end;
    std::set<NodeId> watchers;
    /// Where a life of it has ended that was followed by another: a later control is told of it
    /// there, until the news of what followed has come.
    std::set<NodeId> reporters;
    Maker maker;
    std::shared_ptr<const ErrorInfo> error;
  };
  /// Asked about, and not spawned or reported by its node so far.
  struct Unknown {
    std::set<NodeId> watchers;
    bool killed = false;
    std::uint64_t killed_life = 0;  ///< as an Actor's
    Time since{};
  };
  /// Dead, but no control after this one might know it: it may still live there (nowhere: nobody
  /// has said so), an earlier life's end may be told, or it may be asked for again.
  struct Tombstone {
    NodeId node;
    Epoch epoch = 0;
    std::uint64_t life = 0;  ///< an earlier one's end is not the actor's; 0: any may be meant
    std::set<NodeId> reporters;
    Maker maker{};
    bool gracefully = false;  ///< it was not killed: nobody held a handle any more
    /// Its start is on the way to the node, which may say meanwhile that it hosts no such actor.
    bool starts = false;
    bool is_at(NodeId where, Epoch since) const { return node == where && epoch == since; }
  };
  Actor* current(ActorId id, std::uint64_t incarnation);
  ActorLocation location_of(ActorId id, const Actor& actor) const;
  void place(Actor& actor, Out& out);
  void fail(Actor& actor, const std::string& what, const Error& cause, bool counts, Out& out,
            Time now);
  void place_later(Actor& actor, Duration pause, Out& out, Time now);
  void note_end(Actor& actor, const Error& cause, Time now) const;
  void forget_due(Actor& actor);
  void bury(Actor& actor, const std::string& why, const std::optional<Error>& cause, Out& out);
  enum class Stop : std::uint8_t { gracefully, for_good, may_restart };
  void stop(const Actor& actor, const std::string& why, Out& out, Stop how = Stop::for_good) const;
  void end(Actor& actor, Stop how, Out& out);
  void tell(Actor& actor, Out& out);
  void adopt(const HostedActor& hosted, NodeId node, Epoch epoch, Out& out, Time now);
  void stop_awaiting(NodeId node, Epoch epoch, Out& out, Time now);
  void resolve_unclaimed(Out& out, Time now);
  void reply_error(const SpawnActor& message, const Error& error, Out& out) const;
  void describe(ActorReply& reply) const;
  bool is_unclaimed(const Name& name) const;
  void answer_waiting(Out& out, Time now);
  Unknown& unknown(ActorId id, Time now);
  void add_tombstone(const Actor& actor, bool may_live, Out& out, Stop how = Stop::for_good);
  using Tombstones = std::map<ActorId, Tombstone>;
  Tombstones::iterator drop_tombstone(Tombstones::iterator tombstone, Out& out);
  void life_ended(ActorId id, std::uint64_t life, bool told_again, Out& out);
  void node_spoke(const NodeHosts& message, const std::set<ActorId>& there,
                  const std::set<ActorId>& ended, Out& out);
  Unknown take_unknown(Actor& actor);
  bool is_ending(const SpawnActor& message) const;
  void free_names(Out& out);
  template <class Which>
  void give_up_waiting(Which is_meant, const Error& why, Out& out);
  static bool belongs_to(const ActorSpec& spec, JobId job);
  bool is_of_ending_job(const SpawnActor& message, Out& out) const;
  void refuse_spawns(JobId job, Out& out);
  void end_with_job(Actor& actor, Out& out);
  std::set<ActorId> actors_of(JobId job) const;
  bool is_over(ActorId id, const Actor& actor) const;
  bool is_told_to_end(ActorId id) const;
  void look_at_ending_job(JobId job, Out& out);
  void look_at_ending_jobs(Out& out);
  void may_be_over(ActorId id, Out& out);
  void end_jobs(Out& out, Time now);
  Time unknown_until(Time since) const;
  void expire_unknown(Time now, Out& out);

  DirectoryOptions options_;
  Epoch control_epoch_;
  std::uint64_t next_incarnation_;
  std::map<ActorId, Actor> actors_;
  std::map<Name, ActorId> names_;
  std::deque<ActorId> dead_;
  std::set<std::pair<NodeId, Epoch>> awaited_;
  std::map<NodeId, std::uint64_t> registrations_;  ///< each one's last
  std::set<std::pair<Time, ActorId>> due_;         ///< every actor with a place_at
  Tombstones tombstones_;
  std::map<ActorId, Unknown> unknown_;
  std::set<std::pair<Time, ActorId>> unknown_since_;
  Time all_heard_since_{};
  /// Requests about names whose holders' nodes have not spoken yet, by who asks and its number.
  std::map<std::pair<NodeId, std::uint64_t>, Name> waiting_finds_;
  std::map<std::pair<NodeId, std::uint64_t>, SpawnActor> waiting_spawns_;
  /// Names of actors that nobody holds and whose processes have not ended.
  std::map<Name, ActorId> ending_;
  EndingJobs ending_jobs_;
  Time latest_{};  ///< at which a spawn was asked for
  /// Of the waiting spawns those for such a name, by when they are answered.
  std::map<std::pair<NodeId, std::uint64_t>, Time> ending_until_;
};

}  // namespace troupe::control
