/// One simulated process, a driver or a worker: the real TaskManager and ActorCalls, with the
/// rules of client/engine*.cpp for entries, promotion, counts, forwarding and blocking played
/// around them. A Program says what the process runs.
///
/// The rings outlive the process, since its agent reads what the process wrote before it died.
#pragma once

#include "tests/simulation/cluster/channel.hpp"
#include "tests/simulation/cluster/truth.hpp"
#include "troupe/runtime/client/actor_calls.hpp"
#include "troupe/runtime/client/tasks.hpp"

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::sim::cluster {

using detail::ObjectHandle;
using Kind = wire::Value::Kind;
class Process;
class Program;

/// A record of the process's reference table (client/objects.hpp).
struct Entry final : detail::ObjectEntry {
  Process* home = nullptr;
  Kind kind = Kind::pending;
  bool ready = false, promoted = false, awaited = false, wants_bytes = false, fetching = false;
  bool fulfil = false, owns_location = false, adopted = false;
  wire::Location location;
  std::uint64_t content = 0;
  std::shared_ptr<const ErrorInfo> error, fetch_error;
  std::vector<ObjectHandle> nested;
  ObjectHandle source;
  std::vector<std::function<void(Entry&)>> waiters;
  // Only for a value of another node:
  bool fetched = false;
  Kind fetched_kind = Kind::pending;
  wire::Location fetched_location;
  std::uint64_t fetched_content = 0;
  std::vector<ObjectHandle> fetched_nested;
};
inline Entry& entry_of(const ObjectHandle& handle) {
  return *static_cast<Entry*>(handle.entry());
}

/// Appends bytes to a payload and records their place in the value.
void append(wire::Value& value, BlobView bytes, Blob& payload);

/// Messages between a process and its agent, in order.
struct Rings {
  Rings();  // defined in process.cpp, since messages are dear to instantiate
  ~Rings();
  std::deque<std::pair<wire::NodeMessage, Blob>> to_agent, from_agent;
};

/// What a process needs from its machine.
class Machine {
 public:
  virtual ~Machine() = default;
  virtual Time now() const = 0;
  /// Returns the clock that includes the time in which the machine slept.
  virtual Time up_time() const = 0;
  virtual Random& random() = 0;
  virtual Store& store() = 0;
  virtual Truth& truth() = 0;
  /// Tells the agent that it has something to read.
  virtual void wake_agent() = 0;
  virtual void wake(ProcessIndex process, Duration after) = 0;
  /// Interrupts the thread of the process's actor at that time, by up_time().
  virtual void interrupt_at(ProcessIndex process, Time at) = 0;
  /// Returns until when actors here may serve, as the agent published last
  /// (client/actor_lease_timer.hpp).
  virtual std::int64_t actor_lease_word() const = 0;
  /// Returns whether the agent is stopped while the processes of its node run on.
  virtual bool stands_still() const = 0;
  /// Ends the process by its own exit after this step.
  virtual void exit_process(ProcessIndex process) = 0;
  /// Ends the process by a fault while it writes a frame. It does nothing more.
  virtual void killed_in_a_frame(ProcessIndex process) = 0;
  virtual NodeId node() const = 0;
  /// Returns the nodes that this node knows, itself included.
  virtual std::vector<NodeId> nodes() const = 0;
  virtual bool faulting() const = 0;
  /// Returns whether any process of the cluster hosts the actor.
  virtual bool actor_lives(ActorId actor) = 0;
  /// See Cluster::outlived().
  virtual std::string outlived() = 0;
  /// Returns whether the actor has a process on another node whose agent is stopped.
  virtual bool lives_beside(ActorId actor) = 0;
  /// Called when this process knows the actor's next life but not yet the end of the one before.
  /// Returns whether to use that moment as a fault. If so, control receives this node's messages
  /// late.
  virtual bool next_life_waits() = 0;
};

/// An opened value.
struct Opened {
  std::shared_ptr<const ErrorInfo> error;
  std::uint64_t content = 0;
  std::vector<ObjectHandle> nested;
};
struct Incoming {
  ProcessIndex from;
  wire::Call call;
  Blob payload;
};
struct Outgoing {
  Kind kind = Kind::pending;
  std::uint64_t content = 0;
  wire::Location location;
  std::vector<ObjectHandle> refs;
  std::shared_ptr<const ErrorInfo> error;
  ObjectHandle forward;
};

class Process final : private client::TaskManager::Out, private client::ActorCalls::Out {
 public:
  Process(Machine& machine, std::shared_ptr<Rings> rings, ProcessIndex index, bool driver,
          std::uint64_t high);
  ~Process() override;
  /// Makes handles that are released from here on count as objects of simulated processes.
  static void own_objects() noexcept;

  /// Reads what arrived and runs what is due. The machine calls it after a wake().
  void step();
  /// The interrupt handler of the actor's thread: it checks the actor lease before the thread
  /// does anything else.
  void interrupt();
  /// Returns whether the actor's thread was interrupted and may not go on yet.
  bool stands_still() const noexcept { return stands_still_; }
  /// Returns until when the actor goes on without another look at its lease. Zero when it does
  /// not run or has no lease to check.
  Time serves_until() const noexcept {
    return stands_still_ || alarm_ == Time::max() ? Time{} : alarm_;
  }
  void connect(ProcessIndex peer, End end, bool remote, ProcessIndex holder);

  // For the program.
  ObjectHandle submit(const Spec& spec, std::vector<ObjectHandle> arguments,
                      std::vector<ObjectHandle> refs, LeaseKey key, int retries);
  ObjectHandle call(ActorId actor, const ObjectHandle& lifetime, const Spec& spec,
                    std::vector<ObjectHandle> arguments);
  struct Spawn {
    std::string name;
    bool detached = false, get_if_exists = false;
    int max_restarts = 0;
    std::vector<std::pair<std::string, std::int64_t>> takes;  ///< of what its node has
    Spec constructor;
    ObjectHandle argument;
  };
  std::pair<ActorId, ObjectHandle> spawn(const Spawn& options);
  std::uint64_t find(const std::string& name);
  void kill(ActorId actor, bool may_restart);
  ObjectHandle put(std::uint64_t content, std::uint64_t bytes, std::vector<ObjectHandle> refs);
  /// Returns the key for submit() of a demand that requires this node, or with `soft` prefers it.
  LeaseKey key_of(NodeId node, bool soft);
  void need(Entry& entry, bool bytes);
  bool is_here(const Entry& entry) const;
  bool fetch_failed(const Entry& entry) const;
  Opened open(const ObjectHandle& handle);
  void reply(const Incoming& call, const Outgoing& value, Duration ran);
  void created(ActorId actor, std::uint64_t incarnation, const Error* error);
  /// Takes over the arguments of a call that arrived, and the refs inside them.
  std::vector<ObjectHandle> adopt_refs(const std::vector<ObjectId>& ids);
  void block(bool on);
  bool is_blocked() const noexcept { return blocked_; }
  void drop_refs(const wire::Call& call);
  ProcessIndex index() const noexcept { return index_; }
  bool driver() const noexcept { return driver_; }
  Machine& machine() noexcept { return machine_; }
  Program& program() noexcept { return *program_; }
  std::size_t live_calls() const { return tasks_.live() + actors_.live(); }
  std::size_t live_entries() const noexcept { return live_; }
  const std::map<ObjectId, Entry*>& promoted() const noexcept { return table_; }
  void finish();  ///< sends the last message of a driver
  /// Undoes the last frame, as if the process was killed after it had told its agent of the frame
  /// and before it sent it. Returns false when no frame is left to undo.
  bool never_sent_the_last();
  /// Kills the process in this way at its nth frame that carries a count, if faults strike then.
  void never_sends(std::uint64_t nth_count) { counts_left_ = nth_count; }
  std::string describe() const;

  void released(Entry* entry);

 private:
  friend class Program;
  struct Peer {
    ProcessIndex process, holder;
    bool remote = false;
    End end;
    std::uint64_t sent = 0, started = 0;
    /// Returns the hold that describes the next frame to this peer.
    wire::Hold hold() const {
      wire::Hold hold;
      hold.process = holder;
      hold.delta = 1;
      if (remote || !end) return hold;
      hold.frame = end.sent() + 1;
      hold.waiting = static_cast<std::uint32_t>(end.waiting());
      return hold;
    }
  };
  // TaskManager::Out, ActorCalls::Out
  bool send(ProcessIndex worker, client::Task& task) override;
  void request_lease(LeaseKey key, std::uint32_t backlog) override;
  void return_lease(LeaseId lease) override;
  void recall(ProcessIndex worker) override;
  void fail(client::Task& task, const Error& error) override;
  bool send(ProcessIndex worker, client::ActorCall& call) override;
  void watch(ActorId actor) override;
  void fail(client::ActorCall& call, const Error& error) override;

  struct Killed {};
  /// Runs `body`. Ends the process if a fault kills it meanwhile.
  template <class Body>
  void alive(const Body& body);
  void turn();
  void begin_actor_lease();
  bool may_go_on();
  /// Returns the hold of the next frame, which gives a count to its receiver.
  wire::Hold in_flight_hold(const Peer& to);
  void put_frame(Peer& peer, Frame frame);
  void tell(wire::NodeMessage message, Blob payload = {});
  void drain_agent();
  void drain_peer(Peer& peer);
  void on_agent(wire::NodeMessage& message, BlobView payload);
  void on_peer_died(const wire::PeerDied& message);
  void on_frame(Peer& peer, Frame& frame);
  void on_reply(Peer& peer, const wire::Reply& reply, BlobView payload);
  void grant(const wire::LeaseGranted& granted);
  void on_actor_update(const wire::ActorUpdate& update);
  void hand_back_unstarted();
  Peer* peer_of(ProcessIndex process);

  ObjectHandle create();
  ObjectHandle adopt(ObjectId id, bool& fresh);
  ObjectHandle keep(Entry& entry);
  void mark_promoted(Entry& entry);
  void settle(Entry& entry, const wire::Value& value, BlobView payload);
  void arrive(Entry& entry, const wire::Value& value, BlobView payload);
  void follow(Entry& entry);
  void settle_error(Entry& entry, const Error& error);
  void finish_settling(Entry& entry);
  static const Entry& origin_of(const Entry& entry);
  wire::Value record_of(Entry& entry, Blob& payload);
  void promote(Entry& entry);
  void share(const ObjectHandle& handle, const Peer& to);
  void give_back(const wire::Value& value);
  void collect();
  void free_entry(Entry* entry);
  wire::Value outgoing_entry(Entry& entry, const Peer& to, Blob& payload);
  wire::Value outgoing(const ObjectHandle& handle, const Peer& to, Blob& payload);
  wire::Value outgoing(const Outgoing& value, const Peer& to, Blob& payload);
  wire::Value outgoing_forward(const ObjectHandle& handle, const Peer& to);
  wire::Call encode_call(const detail::Call& call, const Peer& to, Blob& payload);
  bool send_call(ProcessIndex worker, const detail::Call& call, std::uint64_t actor_low,
                 std::uint32_t attempt, std::uint32_t results, std::uint64_t& sequence);
  std::uint32_t watch_arguments(const detail::Call& call, std::function<void(Entry&)> waiter);

  Machine& machine_;
  std::shared_ptr<Rings> rings_;
  ProcessIndex index_;
  bool driver_;
  std::uint64_t high_, low_ = 0, next_actor_ = 0, next_request_ = 0;
  bool dying_ = false, collecting_ = false, gives_ = false;
  std::uint64_t counts_left_ = 0;  ///< 0: no fault kills the process in a frame
  std::vector<std::pair<NodeId, bool>> node_keys_;
  std::map<ActorId, ProcessIndex> homes_;  ///< the worker in which each actor lived last
  std::vector<Entry*> released_;
  std::size_t live_ = 0;
  std::map<ObjectId, Entry*> table_;
  std::map<ProcessIndex, Peer> peers_;
  std::set<ProcessIndex> dead_peers_;
  std::vector<wire::LeaseGranted> pending_grants_;
  std::vector<wire::ActorUpdate> pending_updates_;
  std::deque<Incoming> incoming_;
  std::deque<std::pair<wire::StartActor, Blob>> starts_;
  bool blocked_ = false, shutdown_ = false;
  Time alarm_ = Time::max();  ///< when the actor's thread is interrupted, by up_time()
  bool stands_still_ = false;
  Time next_tick_ = Time::max();
  std::unique_ptr<Program> program_;
  client::TaskManager tasks_{*this};
  client::ActorCalls actors_{*this};
};

/// Reads and writes a Spec as the bytes of an argument.
Blob bytes_of(const Spec& spec);
Spec spec_of(BlobView bytes);

}  // namespace troupe::sim::cluster
