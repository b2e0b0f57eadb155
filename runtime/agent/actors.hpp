/// The actors of a node: who hosts which, restarts, names, who wants to know. A plain state
/// machine.
///
///     actors.create(process, message, payload, now);   // → out.need_worker(actor, shape)
///     actors.worker_ready(actor, worker, gpus);        // → out.start_actor(worker, …)
///     actors.created(actor, incarnation, error);       // → out.publish(alive)
///     actors.worker_died(worker, reason, now);         // → a new incarnation, or
///     out.publish(dead)
///
/// Invariants: H-1 an incarnation has one worker and is alive at most once. H-2 within
/// restart_window an actor is restarted at most max_restarts times. H-3 a name belongs to at most
/// one actor that is not dead.
#pragma once

#include "troupe/runtime/agent/owners.hpp"
#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/wire/messages.hpp"

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace troupe::agent {

class ActorHost {
 public:
  class Out {
   public:
    virtual ~Out() = default;
    virtual void need_worker(ActorId actor, const wire::Shape& shape) = 0;
    /// The actor will not use the worker that was asked for or given.
    virtual void release_worker(ActorId actor) = 0;
    virtual void start_actor(ProcessIndex worker, const wire::StartActor& start,
                             BlobView payload) = 0;
    /// Asks the worker to end by itself; it is killed when it does not.
    virtual void end_worker(ProcessIndex worker) = 0;
    virtual void kill_worker(ProcessIndex worker) = 0;
    /// To every watcher of the actor.
    virtual void publish(ProcessIndex watcher, const wire::ActorUpdate& update) = 0;
    virtual void answer(ProcessIndex process, const wire::FoundActor& found) = 0;
    /// The actor will not be started again: what its constructor's arguments hold is let go.
    virtual void drop_creation(const wire::Call& creation) = 0;
  };

  explicit ActorHost(Out& out) : out_(out) {}

  /// False when the name belongs to another actor (the creator finds that one under it).
  bool create(const wire::CreateActor& message, BlobView payload);
  void worker_ready(ActorId actor, ProcessIndex worker, std::vector<std::int32_t> gpus);
  void no_worker(ActorId actor, const Error& why);
  void created(ProcessIndex worker, const wire::ActorCreated& message, Time now);
  void worker_died(ProcessIndex worker, const Error& reason, Time now);
  void watch(ActorId actor, ProcessIndex process, Time now);
  void kill(ActorId actor, bool may_restart, Time now);
  /// No handle is left: it ends when what it was asked has been done.
  void unreferenced(ActorId actor);
  void find(ProcessIndex process, const wire::FindActor& message);
  void forget_watcher(ProcessIndex process);
  void on_timer(Time now);
  std::optional<Time> next_deadline() const;

  struct Row {
    ActorId id;
    std::string name, class_name;
    wire::ActorState state;
    std::uint64_t incarnation;
    ProcessIndex worker;
  };
  std::vector<Row> rows() const;
  bool hosts(ProcessIndex worker) const { return by_worker_.count(worker) != 0; }

 private:
  struct Actor {
    wire::CreateActor spec;
    Blob payload;
    bool known = false;  ///< its CreateActor has come
    Time unknown_since{};
    wire::ActorState state = wire::ActorState::pending;
    std::uint64_t incarnation = 0;
    ProcessIndex worker = 0;
    bool final = false;      ///< no restart any more
    bool abandoned = false;  ///< no handle is left: forgotten once its process has ended
    std::deque<Time> restarts;
    std::shared_ptr<const ErrorInfo> error;
    std::set<ProcessIndex> watchers;
  };
  void publish(ActorId id, const Actor& actor);
  static wire::ActorUpdate update_of(ActorId id, const Actor& actor);
  void begin(ActorId id, Actor& actor);
  void bury(ActorId id, Actor& actor, const Error& reason);
  bool may_restart(Actor& actor, Time now) const;
  void free_name(ActorId id, const Actor& actor);

  Out& out_;
  std::map<ActorId, Actor> actors_;
  std::map<ProcessIndex, ActorId> by_worker_;
  std::map<std::pair<std::string, std::string>, ActorId> names_;
};

}  // namespace troupe::agent
