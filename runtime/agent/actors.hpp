/// The actors of one node: those that it hosts, and those that its processes made or watch.
/// Control's Directory decides about names, places, restarts and deaths; ActorHost carries that out
/// and reports. A plain state machine.
///
///     actors.create(message, payload, job, process);  // -> SpawnActor to control
///     actors.start(start_at, now);                    // -> out.need_worker(life, ...)
///     actors.worker_ready(life, worker, gpus);        // -> out.start_actor(worker, ...)
///     actors.created(worker, message);                // -> ActorStarted to control
///     actors.located(location, now);                  // -> out.publish(watcher, update)
///
/// A *life* is an incarnation. Control gives each incarnation number once over all actors, so the
/// number alone names a life here.
///
/// A message to control may be lost with control, even after its machine has acknowledged it. So
/// each message on which an actor's fate depends is kept and sent again to the next control:
/// - SpawnActor until the actor lives or is dead;
/// - ActorGone until a later life lives or the actor is dead;
/// - KillActor until the actor is dead or, if it may be restarted, until the life that was meant
///   is over.
///
/// Invariants: HOST-1 every life that control starts here is answered by ActorStarted or
/// ActorStartFailed. ActorGone answers instead when the process ended first, or when the
/// constructor of a later life threw. After ActorStarted, each control that may not know of the
/// life's end gets one ActorGone. HOST-2 control is asked once about an actor, however many
/// processes watch it here. HOST-3 the refs among a constructor's arguments are released once, when
/// the actor is dead or was never made.
#pragma once

#include "troupe/runtime/agent/actor_kills.hpp"
#include "troupe/runtime/agent/control_port.hpp"
#include "troupe/runtime/agent/reference_table.hpp"
#include "troupe/runtime/wire/peer.hpp"

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace troupe::agent {

class ActorHost {
 public:
  /// The effects of this state machine. A function must not call back into ActorHost.
  class Out {
   public:
    virtual ~Out() = default;
    /// Asks for a worker; worker_ready(), no_worker() or worker_ended_early() answers.
    virtual void need_worker(std::uint64_t life, const scheduling::ResourceDemand& demand,
                             JobId job) = 0;
    /// Withdraws the request of need_worker(), or returns the worker that it got.
    virtual void release_worker(std::uint64_t life) = 0;
    /// `refs`: the refs among the constructor's arguments, with their owners.
    virtual void start_actor(ProcessIndex worker, const wire::StartActor& start, BlobView payload,
                             const std::vector<wire::OwnedRef>& refs) = 0;
    /// Asks the worker to end when it has run the calls that it received.
    virtual void end_worker(ProcessIndex worker) = 0;
    virtual void kill_worker(ProcessIndex worker) = 0;
    /// Tells a watcher about an actor that lives at this node, or lives nowhere.
    virtual void publish(ProcessIndex watcher, const wire::ActorUpdate& update) = 0;
    /// Tells a watcher about an actor that lives at another node. `silent`: that node does not
    /// answer, and is not known to be dead.
    virtual void publish_remote(ProcessIndex watcher, const control::ActorLocation& location,
                                bool silent) = 0;
    /// Sends the answer. If an actor was found, first counts the process as a holder of `lifetime`,
    /// which `owner` owns.
    virtual void answer(ProcessIndex process, const wire::FoundActor& found, NodeId owner) = 0;
    virtual NodeId owner_of(ObjectId object) = 0;
    /// Releases the refs among the constructor's arguments: the actor is not started again.
    virtual void drop_creation(const wire::Call& creation) = 0;
  };

  ActorHost(Out& out, ControlPort& control, NodeId self)
      : out_(out), control_(control), self_(self), kills_(control) {}

  // --- from processes of this node
  using BytesByNode = std::vector<std::pair<NodeId, std::uint64_t>>;
  /// Asks control to make an actor. `process` gets the FoundActor that the message asks for.
  /// `near`: the nodes that have the bytes of the constructor's arguments; one of them is
  /// preferred.
  void create(const wire::CreateActor& message, BlobView payload, JobId job,
              ProcessIndex process = {}, BytesByNode near = {});
  void created(ProcessIndex worker, const wire::ActorCreated& message);
  void watch(ActorId actor, ProcessIndex process);
  /// Asks control to end the actor or, with `may_restart`, its present life. `killer`: a process
  /// that is then told which life ends, so that its later calls go to the next one; 0: none.
  /// `job`: that of the killing process, for control to judge; zero: the agent itself kills.
  void kill(ActorId actor, bool may_restart, ProcessIndex killer = {}, JobId job = {});
  void find(ProcessIndex process, const wire::FindActor& message);
  /// Tells control that no handle is left of an actor that was made here: the actor ends when it
  /// has run its calls. Does nothing for a detached actor.
  void unreferenced(ActorId actor);
  /// Handles the death of any process of this node. If it hosted an actor, sends ActorGone.
  void worker_died(ProcessIndex worker, const Error& reason);

  // --- from the lease table
  void worker_ready(std::uint64_t life, ProcessIndex worker, std::vector<std::int32_t> gpus);
  void no_worker(std::uint64_t life, const Error& why);
  /// Asks for another worker: the one that was granted ended before the life got it.
  void worker_ended_early(std::uint64_t life);

  /// How long an actor without holders may take to end: to run its calls to itself and its
  /// destructor, and to send what that sends.
  static constexpr Duration kEndGrace = std::chrono::seconds(10);
  void on_tick(Time now);
  Time next_deadline() const;

  // --- from control
  void start(const control::StartActorAt& order, Time now);
  /// Ends a life. A graceful end becomes a kill after kEndGrace.
  void stop(const control::StopActorAt& order, Time now);
  void replied(const control::ActorReply& reply);
  void located(const control::ActorLocation& location, Time now);
  /// Tells watchers of the node's actors again where these live. The connection to the node was
  /// lost, but the node is not dead: the watchers need new proxies.
  void out_of_reach(NodeId node);
  /// Tells watchers of the node's actors that it does not answer and is not known to be dead, or
  /// (`silent` is false) that it answers again.
  void silent(NodeId node, bool silent);
  /// Handles Registered. Control may be another process that knows nothing: it is told what is
  /// hosted here, and each message without an answer is sent again. From now on starts by an
  /// earlier control, or for another epoch of this node, are refused. `number`: that of
  /// Registered.
  void registered(Epoch epoch, Epoch control_epoch, std::uint64_t number, Time now);
  /// Notes that unanswered messages to control may be lost; registered() sends them again. Until
  /// then control is not asked about actors whose SpawnActor may be lost: it would answer after a
  /// while that they are dead.
  void control_lost() noexcept;

  /// Returns whether this life of the actor is alive in that process.
  bool hosts(ProcessIndex worker, ActorId actor, std::uint64_t life) const;
  /// Returns whether that process is an actor, or runs the constructor of one.
  bool hosts(ProcessIndex worker) const { return by_worker_.count(worker) != 0; }
  /// Returns the actor that lives in the worker, or begins there; zero: none.
  ActorId actor_on(ProcessIndex worker) const;
  /// Returns whether the actor was made by a process of this node and is not known to be dead.
  bool was_made_here(ActorId actor) const { return made_.count(actor) != 0; }
  /// Returns what an actor that was made here and has not lived yet asks for; nullptr: another one.
  const scheduling::ResourceDemand* demand_of(ActorId actor) const;
  /// Returns the life of the actor that begins at this node, and whether a process has it already.
  struct Beginning {
    std::uint64_t life = 0;
    bool has_process = false;
  };
  std::optional<Beginning> beginning_of(ActorId actor) const;
  std::size_t hosted() const noexcept { return lives_.size(); }
  std::size_t watched() const noexcept { return watched_.size(); }

 private:
  struct Life {
    std::shared_ptr<const control::ActorSpec> spec;
    bool restarted = false;
    std::uint32_t restarts = 0;  ///< within the window before `since`
    Time since{};
    ProcessIndex worker;
    bool alive = false;   ///< its constructor has returned
    bool ending = false;  ///< told to end, and no other life follows
    Time kill_at = Time::max();
  };
  using Lives = std::map<std::uint64_t, Life>;
  struct Watched {
    std::set<ProcessIndex> watchers;
    std::optional<control::ActorLocation> alive;  ///< where it lives, as control said last,
    std::optional<wire::ActorUpdate> waits;       ///< ... or how its last life ended
    std::uint64_t newest = 0;                     ///< of the lives in control's messages
    /// A life ended here, or a copy of a SpawnActor that was refused may have been accepted.
    /// Control keeps the actor's tombstone until dead() sends WatchActor{off}.
    bool told_end = false;
  };
  using WatchedActors = std::map<ActorId, Watched>;
  struct Made {
    wire::Call creation;
    bool detached = false;
    bool handles_gone = false;
  };
  struct Ended {
    Life life;
    control::ActorGone news;
  };
  /// A SpawnActor, kept until the actor is known to live or is dead.
  struct Spawning {
    control::SpawnActor message;
    std::uint32_t said = 0;    ///< how often it was sent
    bool may_be_lost = false;  ///< control was lost since it was sent
    bool replied = false;
    ProcessIndex process;       ///< gets the FoundActor,
    std::uint64_t request = 0;  ///< ... with this number; 0: it got it, or wants none
  };
  struct Question {
    ProcessIndex process;
    wire::FindActor find;
    std::uint32_t asked = 0;
  };
  Watched& ask_for(ActorId actor);
  void tell(ProcessIndex watcher, const control::ActorLocation& location);
  wire::ActorUpdate waiting(const control::ActorLocation& location, Time now) const;
  void start_failed(Lives::iterator life, std::shared_ptr<const ErrorInfo> error);
  void gone(Lives::iterator life, const Error& reason);
  void dead(ActorId actor);
  void lives(ActorId actor, std::uint64_t incarnation);
  void heard_of(ActorId actor, std::uint64_t incarnation);
  void kill_refused(const ActorKills::Kill& kill, const std::shared_ptr<const ErrorInfo>& why);
  void tell_killed_life(ActorId actor, std::uint64_t life, ProcessIndex killer);
  void drop_made(ActorId actor);
  void say(Spawning& spawning);
  void spawn_replied(Spawning& spawning, const control::ActorReply& reply);
  void was_made(ActorId actor);
  void forget_watcher(ProcessIndex process);
  WatchedActors::iterator stop_watching(WatchedActors::iterator watched);
  void forget_spawning(ActorId actor);
  void ask_again(std::uint64_t request, const Question& question);
  bool is_ending(const control::ActorReply& reply) const;
  void tell_hosted(std::uint64_t number, Time now);

  Out& out_;
  ControlPort& control_;
  NodeId self_;
  Epoch epoch_ = 0;  ///< zero: any
  Epoch control_epoch_ = 0;
  Lives lives_;
  std::map<ProcessIndex, std::uint64_t> by_worker_;
  WatchedActors watched_;
  std::map<ActorId, Made> made_;  ///< by processes of this node, not known to be dead
  ActorKills kills_;
  std::uint64_t next_request_ = 0;
  std::map<std::uint64_t, Spawning> spawning_;    ///< by request
  std::map<ActorId, std::uint64_t> spawning_of_;  ///< the request by actor
  /// Lives that ended here. Control has told neither of a later life that lives nor of the actor's
  /// death.
  std::map<std::pair<ActorId, std::uint64_t>, Ended> ended_;
  std::map<std::uint64_t, Question> questions_;
  std::set<NodeId> silent_;
};

}  // namespace troupe::agent
