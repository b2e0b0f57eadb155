/// The node's share of actors: what it hosts, what its processes made and watch. Control's
/// Directory decides (names, places, restarts, death); this carries it out and reports. A plain
/// state machine.
///
///     actors.create(message, payload, job, process);      // -> SpawnActor to control
///     actors.start(start_at, now);                             // -> out.need_worker(life, ...)
///     actors.worker_ready(life, worker, gpus);            // -> out.start_actor(worker, ...)
///     actors.created(worker, message);                    // -> ActorStarted to control
///     actors.located(location);                           // -> out.publish(watcher, update)
///
/// A *life* is an incarnation: control gives each only once over all actors, so it names the
/// actor's stay here by itself.
///
/// Whatever control was told may be lost with it, also what its machine has acknowledged. So a word
/// on which an actor's fate hangs is kept and said again to the next control until what follows
/// from it is heard: an actor that was made here until it lives or is dead, the end of a life until
/// a later one lives or the actor is dead, a kill until the actor is dead or, if it may be
/// restarted, the life that was meant is over.
///
/// Invariants: HOST-1 every life that control starts here is answered by ActorStarted or
/// ActorStartFailed, or by ActorGone when its process ended first or its constructor threw though
/// a life before had begun, and after ActorStarted by one ActorGone to each control that may not
/// know of it. HOST-2 control is asked once about an actor,
/// whoever watches it here. HOST-3 what a constructor's arguments hold is let go once, when its
/// actor is dead or never was.
#pragma once

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
  /// What follows here; must not call back in.
  class Out {
   public:
    virtual ~Out() = default;
    virtual void need_worker(std::uint64_t life, const scheduling::ResourceDemand& demand,
                             JobId job) = 0;
    /// The life will not use the worker that was asked for or given.
    virtual void release_worker(std::uint64_t life) = 0;
    /// `refs`: the refs among the constructor's arguments, with their owners.
    virtual void start_actor(ProcessIndex worker, const wire::StartActor& start, BlobView payload,
                             const std::vector<wire::OwnedRef>& refs) = 0;
    /// Asks the worker to end when it has done what it was asked.
    virtual void end_worker(ProcessIndex worker) = 0;
    virtual void kill_worker(ProcessIndex worker) = 0;
    /// About an actor of this node, or one that is alive nowhere.
    virtual void publish(ProcessIndex watcher, const wire::ActorUpdate& update) = 0;
    /// The actor is alive at another node.
    /// `silent`: its node says nothing, and is not known to be dead.
    virtual void publish_remote(ProcessIndex watcher, const control::ActorLocation& location,
                                bool silent) = 0;
    /// When found, the process is to be counted as a holder of `lifetime`, at its owner.
    virtual void answer(ProcessIndex process, const wire::FoundActor& found, NodeId owner) = 0;
    virtual NodeId owner_of(ObjectId object) = 0;
    /// The actor will not be started again: what its constructor's arguments hold is let go.
    virtual void drop_creation(const wire::Call& creation) = 0;
  };

  ActorHost(Out& out, ControlPort& control, NodeId self)
      : out_(out), control_(control), self_(self) {}

  // --- from processes of this node
  using BytesByNode = std::vector<std::pair<NodeId, std::uint64_t>>;
  /// `process` gets the FoundActor that the message asks for. `near`: where the bytes of its
  /// arguments are; it goes there if nothing speaks against it.
  void create(const wire::CreateActor& message, BlobView payload, JobId job,
              ProcessIndex process = 0, BytesByNode near = {});
  void created(ProcessIndex worker, const wire::ActorCreated& message);
  void watch(ActorId actor, ProcessIndex process);
  /// `killer` hears which life a kill ends that may be followed by another: its later calls are the
  /// next life's. 0: nobody.
  /// `job`: whose process kills it, which control judges; zero: the agent itself does.
  void kill(ActorId actor, bool may_restart, ProcessIndex killer = 0, JobId job = {});
  void find(ProcessIndex process, const wire::FindActor& message);
  /// No handle is left of an actor that was made here: it ends when what it was asked is done.
  void unreferenced(ActorId actor);
  /// Any process; if it hosted an actor, control hears of it.
  void worker_died(ProcessIndex worker, const Error& reason);

  // --- from the lease table
  void worker_ready(std::uint64_t life, ProcessIndex worker, std::vector<std::int32_t> gpus);
  void no_worker(std::uint64_t life, const Error& why);
  /// The worker that was granted has ended before it was given to the life, which needs another.
  void worker_ended_early(std::uint64_t life);

  /// How long an actor that nobody holds may take to end: to run what it has told itself, its
  /// destructor, and what that sends.
  static constexpr Duration kEndGrace = std::chrono::seconds(10);
  void on_tick(Time now);
  Time next_deadline() const;

  // --- from control
  void start(const control::StartActorAt& order, Time now);
  /// One that may finish what it was asked is killed kEndGrace later.
  void stop(const control::StopActorAt& order, Time now);
  void replied(const control::ActorReply& reply);
  void located(const control::ActorLocation& location, Time now);
  /// The way to that node was lost and it is not dead: who calls its actors needs another.
  void out_of_reach(NodeId node);
  /// It says nothing and is not known to be dead; or it speaks again.
  void silent(NodeId node, bool silent);
  /// Control has registered this node (again): it is told what is hosted here and, since it may be
  /// another process that knows nothing, asked again whatever was not answered. From now on starts
  /// by an earlier control, or for an earlier epoch of this node, are refused. `number`:
  /// Registered's.
  void registered(Epoch epoch, Epoch control_epoch, std::uint64_t number, Time now);
  /// What was said to control and not answered may be lost; it is said again once registered. Until
  /// then control is not asked about actors that it may not have been asked to make: it would say
  /// after a while that nobody knows them.
  void control_lost() noexcept;

  /// Whether this life of the actor is alive in that process.
  bool hosts(ProcessIndex worker, ActorId actor, std::uint64_t life) const;
  /// Whether that process is some actor's, alive or on its way to it.
  bool hosts(ProcessIndex worker) const { return by_worker_.count(worker) != 0; }
  /// Whether it was made by a process of this node, and is not known to be dead.
  bool was_made_here(ActorId actor) const { return made_.count(actor) != 0; }
  std::size_t hosted() const noexcept { return lives_.size(); }
  std::size_t watched() const noexcept { return watched_.size(); }

 private:
  struct Life {
    std::shared_ptr<const control::ActorSpec> spec;
    bool restarted = false;
    std::uint32_t restarts = 0;  ///< within the window before `since`
    Time since{};
    ProcessIndex worker = 0;
    bool alive = false;
    bool ending = false;  ///< told to end, and no other follows
    Time kill_at = Time::max();
  };
  using Lives = std::map<std::uint64_t, Life>;
  struct Watched {
    std::set<ProcessIndex> watchers;
    std::optional<control::ActorLocation> alive;  ///< the last that was heard, if it lives,
    std::optional<wire::ActorUpdate> waits;       ///< ... or how the life before it ended
    std::uint64_t newest = 0;                     ///< life that was heard of, alive or not
    /// Of a life here, or asked for after a refusal: control is told when that is not said any
    /// more.
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
  /// Until the actor is known to live, or is dead.
  struct Spawning {
    control::SpawnActor message;
    std::uint32_t said = 0;    ///< how often
    bool may_be_lost = false;  ///< not said since control was lost last
    bool replied = false;
    ProcessIndex process = 0;   ///< who is to be told who has the name,
    std::uint64_t request = 0;  ///< ... if this is not 0
  };
  /// A kill that control may refuse.
  struct Killing {
    ActorId actor;
    JobId job;
    ProcessIndex killer = 0;
  };
  struct Question {
    ProcessIndex process = 0;
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
  void say_kill(ActorId actor, bool may_restart, std::uint64_t life);
  void forget_killings(ActorId actor);
  void kill_refused(const Killing& kill, const std::shared_ptr<const ErrorInfo>& why);
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
  std::set<ActorId> killed_;      ///< for good, not known to be dead
  /// Whose processes have killed those, or the lives below: control may not take it from each.
  std::map<ActorId, std::set<JobId>> killing_jobs_;
  std::map<std::uint64_t, Killing> killings_;  ///< by request, those that had no refusal
  /// Killed, and may be restarted: the life that is to end, not known to be over; 0: the first that
  /// is heard of.
  std::map<ActorId, std::uint64_t> killed_lives_;
  std::map<ActorId, std::vector<ProcessIndex>> killers_;  ///< of those 0, who are to hear which
  std::uint64_t next_request_ = 0;
  std::map<std::uint64_t, Spawning> spawning_;    ///< by request
  std::map<ActorId, std::uint64_t> spawning_of_;  ///< the same by actor
  /// Lives that ended here and whose actors' fate has not been heard of since.
  std::map<std::pair<ActorId, std::uint64_t>, Ended> ended_;
  std::map<std::uint64_t, Question> questions_;
  std::set<NodeId> silent_;
};

}  // namespace troupe::agent
