/// The simulator's kernel: many nodes in one thread on virtual time, over a network and disks
/// with faults. All randomness comes from one seed, so the same seed gives the same run.
///
///     struct Echo : sim::Node<Blob> {                       // a node: a core in this interface
///       void on_message(sim::Env<Blob>& env, sim::NodeIndex from, Blob m) override {
///         env.send(from, m);
///       }
///     };
///     sim::World<Blob> world({.seed = 7, .nodes = 3},
///                            [](sim::NodeIndex) { return std::make_unique<Echo>(); });
///     sim::Report report = world.run({.faults_for = 60s, .liveness_within = 120s, .done = all});
///
/// A run has two phases. In the first, the faults of the plan strike. Then all faults end: cut
/// routes heal, and paused and dead nodes run again. The work must now be done within bounded
/// virtual time. Work that is late is a violation, like a failed check(). The message type M is
/// copied between nodes and enters the trace through `trace_into(Trace&, const M&)`, which is
/// found beside M.
///
/// A typical node calls its core with env.now() in on_message and on_timer. Then it carries out
/// the core's effects: env.send(...), env.set_timer(1, core.next_deadline()).
///
/// There are two models of delivery:
/// - `datagram` loses, duplicates and reorders messages, and a dropped connection loses the
///   messages in flight. Link is simulated above this model.
/// - `reliable` is what Link provides to the cores above it. Messages arrive in order and exactly
///   once. Cuts delay them, and only the end of sender or receiver loses them.
///   on_peer_restarted() reports a new life of the sender.
#pragma once

#include "tests/simulation/kernel/disk.hpp"
#include "tests/simulation/kernel/event_heap.hpp"
#include "tests/simulation/kernel/faults.hpp"
#include "tests/simulation/kernel/flat_map.hpp"
#include "tests/simulation/kernel/hooks.hpp"
#include "tests/simulation/kernel/network.hpp"
#include "tests/simulation/kernel/trace.hpp"
#include "troupe/runtime/base/clock.hpp"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::sim {

template <class M>
class World;

/// A node's access to the simulated world. It is valid only during the call that it is passed to.
template <class M>
class Env {
 public:
  NodeIndex self() const noexcept { return self_; }
  std::size_t node_count() const noexcept { return world_.node_count(); }
  /// The number of this life of the node, from 0.
  std::uint32_t incarnation() const noexcept { return world_.incarnation(self_); }
  /// Returns this node's monotonic clock. Each machine's clock has another origin, so do not send
  /// its times to other nodes.
  Time now() const noexcept { return world_.node_now(self_); }
  /// Returns this machine's clock that includes the time in which the machine slept. now()
  /// excludes it.
  Time up_time() const noexcept { return world_.up_time_of(self_); }
  /// Returns the wall clock in nanoseconds. It may jump.
  std::int64_t wall_clock() const noexcept { return world_.wall_clock(self_); }
  /// Hands a message to the network. Never fails; the network decides whether the message
  /// arrives.
  void send(NodeIndex to, M message) { world_.send(self_, to, std::move(message)); }
  /// Calls on_timer(id) at that time of this node's clock. Replaces an earlier timer with this
  /// id.
  void set_timer(std::uint64_t id, Time at) { world_.set_timer(self_, id, at); }
  /// Like set_timer(), but an earlier timer with this id stays when it is due sooner.
  void set_timer_by(std::uint64_t id, Time at) { world_.set_timer_by(self_, id, at); }
  void cancel_timer(std::uint64_t id) { world_.cancel_timer(self_, id); }
  /// Returns this node's own random numbers.
  Random& random() noexcept { return world_.node_random(self_); }
  /// Returns the machine's storage, or null. The storage survives the process.
  Disk* disk() noexcept { return world_.disk(self_); }
  /// Ends this process after the current call, as exit(2) would. world.start() starts it again.
  void exit() { world_.exit_soon(self_); }
  /// Counts one call of the workload. A schedule with too few calls does not count as evidence.
  void count_call() noexcept { world_.count_call(); }
  /// Ends the run with the sentence `why` as its violation, unless `holds`.
  void check(bool holds, const char* why) { world_.check(holds, why); }
  World<M>& world() noexcept { return world_; }

 private:
  friend class World<M>;
  Env(World<M>& world, NodeIndex self) noexcept : world_(world), self_(self) {}
  World<M>& world_;
  NodeIndex self_;
};

/// One process. The world destroys the object when the process is killed, and the factory makes a
/// new one at its restart.
template <class M>
class Node {
 public:
  virtual ~Node() = default;
  virtual void on_start(Env<M>&) {}
  virtual void on_message(Env<M>& env, NodeIndex from, M message) = 0;
  virtual void on_timer(Env<M>&, std::uint64_t) {}
  /// Returns whether that timer belongs to another process of this machine, which keeps running
  /// while this process is stopped alone (World::stop_alone).
  virtual bool goes_on(std::uint64_t /*timer*/) const { return false; }
  /// Returns whether that timer also advances while its machine sleeps, as up_time() does.
  virtual bool counts_sleep(std::uint64_t /*timer*/) const { return false; }
  /// The connection to a peer closed, or was opened again. A killed peer's connection closes too.
  /// A crashed machine and a cut route cause no call.
  virtual void on_connection(Env<M>&, NodeIndex, bool /*up*/) {}
  /// Reliable delivery only. Called before the first message of a peer's new life. Messages that
  /// were sent to the old life and not answered may or may not have been handled.
  virtual void on_peer_restarted(Env<M>&, NodeIndex) {}
};

struct WorldOptions {
  std::uint64_t seed = 0;
  std::size_t nodes = 3;
  Delivery delivery = Delivery::datagram;
  FaultPlan plan = FaultPlan::calm();
  /// Whether killed nodes restart by themselves, after plan.longest_down at most.
  bool restart = true;
  /// Numbers of larger faults that are left out of the schedule, to shrink a failure.
  std::set<std::uint64_t> muted;
  std::uint64_t most_events = ~std::uint64_t{0};  ///< a run with more events is a livelock
};

struct Phases {
  Duration faults_for{};
  Duration liveness_within{};
  /// Returns whether all work is done. Called after every event of the second phase.
  std::function<bool()> done;
};

/// The result of a run. `violation` is empty when every promise held.
struct Report {
  std::uint64_t seed = 0;
  std::uint64_t trace = 0;
  std::uint64_t events = 0;
  std::uint64_t calls = 0;
  std::size_t nodes = 0;
  FaultCounts faults;
  Duration virtual_time{};
  std::string violation;

  /// Returns whether the schedule had enough nodes, calls and faults to count as evidence.
  bool counts() const noexcept { return nodes >= 3 && calls >= 100 && faults.total() >= 5; }
};

template <class M>
class World {
 public:
  using Factory = std::function<std::unique_ptr<Node<M>>(NodeIndex)>;
  using Call = std::function<void()>;

  World(const WorldOptions& options, Factory factory);

  // Setup, before run().
  void attach_disk(NodeIndex node, std::shared_ptr<Disk> disk) {
    members_[node].disk = std::move(disk);
  }
  /// Adds a check that runs after every event. A non-empty answer is a violation.
  void add_invariant(std::function<std::string()> invariant) {
    invariants_.push_back(std::move(invariant));
  }
  /// Runs `call` at that virtual time, for a scripted fault or a workload from outside.
  void at(Duration when, Call call);

  /// Runs both phases once. Ends early at the first violation.
  Report run(const Phases& phases);

  // For nodes, scripts and invariants.
  /// Returns the node's object, or null while the node is dead.
  Node<M>* node(NodeIndex i) noexcept { return members_[i].node.get(); }
  /// Calls `use(env)` as if from inside the node. Does nothing and returns false while the node
  /// is dead or paused.
  template <class Use>
  bool with(NodeIndex i, Use&& use) {
    if (!alive(i) || members_[i].paused) return false;
    Env<M> env(*this, i);
    use(env);
    finish_call(i);
    return true;
  }
  /// Like with(), but also works while the node's first process is stopped alone, since `use`
  /// concerns the processes beside it.
  template <class Use>
  bool beside(NodeIndex i, Use&& use) {
    if (!stopped_alone(i)) return with(i, use);
    Env<M> env(*this, i);
    use(env);
    return true;
  }
  bool alive(NodeIndex i) const noexcept { return members_[i].node != nullptr; }
  bool paused(NodeIndex i) const noexcept { return members_[i].paused; }
  /// Returns when the node resumed after its last pause, or the beginning of time if it was never
  /// paused.
  Time resumed_at(NodeIndex i) const noexcept { return members_[i].resumed; }
  bool stopped_alone(NodeIndex i) const noexcept { return members_[i].alone; }
  bool faulting() const noexcept { return faulting_; }
  /// Returns the number of larger faults in the schedule so far, including muted ones.
  std::uint64_t ticks() const noexcept { return ticks_; }
  Time now() const noexcept { return now_; }
  /// Returns the time on that machine's own clock.
  Time clock_of(NodeIndex i) const noexcept {
    return (members_[i].asleep ? members_[i].asleep_since : now_) + members_[i].clock_offset;
  }
  Time up_time_of(NodeIndex i) const noexcept { return node_now(i) + members_[i].slept; }
  std::size_t node_count() const noexcept { return members_.size(); }
  std::uint32_t incarnation(NodeIndex i) const noexcept { return members_[i].incarnation; }
  Random& random() noexcept { return workload_; }
  void count_call() noexcept { ++report_.calls; }
  void check(bool holds, const char* why) {
    if (!holds) fail(why);
  }
  void fail(std::string why) {
    if (report_.violation.empty()) report_.violation = std::move(why);
  }

  // Faults by hand. The plan injects faults through the same functions.
  /// Injects one fault of this kind at a random place. Returns false when it could strike
  /// nowhere.
  bool inject(Fault fault);
  /// Kills the process. Its peers see closed connections, and its files stay.
  void kill(NodeIndex i) { end_process(i, false, Fault::kill); }
  /// Crashes the machine: it ends silently, and its unsynced writes are lost.
  void crash(NodeIndex i) { end_process(i, true, Fault::crash); }
  void start(NodeIndex i);
  void pause(NodeIndex i, Duration length, Fault kind = Fault::pause);
  /// Stops a machine's first process, as SIGSTOP does, while the processes beside it run on
  /// (Node::goes_on). The caller counts the fault. Returns false when the process is dead or
  /// paused.
  bool stop_alone(NodeIndex i, Duration length);
  /// Stops a machine with all its processes while its clock runs on. The caller counts the fault.
  /// Returns false when the process is dead or paused.
  bool stand_still(NodeIndex i, Duration length);
  /// Puts a machine with all its processes to sleep. Its clock stands still, and its timers take
  /// longer by the time of sleep (but see Node::counts_sleep). Returns false when the process is
  /// dead or paused.
  bool sleep(NodeIndex i, Duration length);
  void cut(Cut cut, Duration length);
  /// Cuts one node off from all others.
  void isolate(NodeIndex i, Duration length);
  void slow_down(NodeIndex a, NodeIndex b, Duration length, Duration by) {
    network_.slow_down(a, b, now_ + length, by);
  }
  void drop_connection(NodeIndex a, NodeIndex b, Duration down,
                       Fault kind = Fault::connection_drop);

 private:
  friend class Env<M>;
  enum class Kind : std::uint8_t { message, timer, connection, call, resume, restart, uncut, tick };
  struct Event {
    Kind kind = Kind::call;
    bool up = false;
    NodeIndex node = 0, from = 0;
    std::uint32_t to_life = 0, from_life = 0;
    std::uint64_t tag = 0;  // number of a connection, timer, cut or call
    M message{};
  };
  struct Member {
    std::unique_ptr<Node<M>> node;
    std::shared_ptr<Disk> disk;
    std::uint32_t incarnation = 0;
    bool started = false, paused = false, exiting = false;
    bool alone = false;  // paused, while the processes beside it run on
    bool asleep = false;
    Time asleep_since{}, resumed{};
    std::vector<std::pair<std::uint64_t, Duration>> asleep_timers;  // timer, time left to it
    Duration clock_offset{}, slept{};
    std::int64_t wall_offset = 0;
    Random random{0};
    FlatMap<std::uint64_t, std::uint32_t> timers;  // id -> the timer's slot, or kHeld
    std::deque<Event> held;                        // events that arrived during a pause
    std::vector<bool> contacts;                    // nodes with which it has exchanged messages
  };

  /// Stands in place of a slot when the timer became due while its node was paused.
  static constexpr std::uint32_t kHeld = ~std::uint32_t{0};

  void send(NodeIndex from, NodeIndex to, M&& message);
  void set_timer(NodeIndex i, std::uint64_t id, Time at);
  void set_timer_by(NodeIndex i, std::uint64_t id, Time at);
  void cancel_timer(NodeIndex i, std::uint64_t id);
  void drop_timer(std::uint32_t slot);
  Time node_now(NodeIndex i) const noexcept { return now_ + members_[i].clock_offset; }
  std::int64_t wall_clock(NodeIndex i) const noexcept {
    return now_.time_since_epoch().count() + members_[i].wall_offset;
  }
  Random& node_random(NodeIndex i) noexcept { return members_[i].random; }
  Disk* disk(NodeIndex i) noexcept { return members_[i].disk.get(); }
  void exit_soon(NodeIndex i) noexcept { members_[i].exiting = true; }

  Event& event_at(std::uint32_t slot) { return slots_[slot / kChunk][slot % kChunk]; }
  std::uint32_t take_slot();
  void push(Time at, Event&& event);
  void step();
  void execute(Event& event);
  void deliver(Event& event);
  void arrive(Event& event);
  void fire(NodeIndex i, std::uint64_t id);
  void trace_arrival(const Event& event);
  void finish_call(NodeIndex i);
  void stop(NodeIndex i, Duration length);
  void end_process(NodeIndex i, bool silent, Fault kind);
  void announce(NodeIndex i, bool up);
  void release_held();
  void heal();
  void resume(NodeIndex i);
  void wake_up(NodeIndex i);
  void schedule_tick();
  bool strike(Fault fault, NodeIndex victim);
  bool damage(NodeIndex victim, Fault fault);
  void cut_randomly(Fault fault, NodeIndex victim);
  Duration random_span(Duration longest) {
    return Duration(
        1 + static_cast<Duration::rep>(faults_.below(static_cast<std::uint64_t>(longest.count()))));
  }

  WorldOptions options_;
  Factory factory_;
  ScheduleScope scope_;
  Random faults_, workload_;
  Network network_;
  std::vector<Member> members_;
  std::vector<std::function<std::string()>> invariants_;
  EventHeap heap_;
  static constexpr std::uint32_t kChunk = 64;
  std::vector<std::unique_ptr<Event[]>> slots_;  // chunks; events never move in memory
  std::uint32_t slot_count_ = 0;
  std::vector<std::uint32_t> free_;
  std::deque<Call> calls_;                         // a deque, since a running call may add others
  std::map<RouteKey, std::deque<Event>> blocked_;  // reliable delivery: waiting for a cut to end
  Trace trace_;
  Report report_;
  Time now_{};
  std::uint64_t ticks_ = 0;
  bool faulting_ = true;
};

}  // namespace troupe::sim

#include "tests/simulation/kernel/world_impl.hpp"
