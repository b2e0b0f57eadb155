/// The simulator's kernel: many nodes in one thread on virtual time, over a network and disks that
/// one seed makes fail. Everything random comes from the seed, so the same seed gives the same run.
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
/// A run has two phases. In the first the faults of the plan strike. Then everything heals (cut
/// routes, paused and dead nodes) and the work must be done within bounded virtual time; if not,
/// that is a violation like a failed check(). The message type M is copied between nodes and
/// enters the trace by `trace_into(Trace&, const M&)` found beside it.
///
/// A node shell usually does: in on_message/on_timer call the core with env.now(), then carry out
/// what it returns: env.send(...), env.set_timer(1, core.next_deadline()).
///
/// Delivery is one of two models. `datagram` loses, doubles and reorders, and a dropped connection
/// loses what is in flight (the world under Link). `reliable` is what Link gives to the cores
/// above it: in order, exactly once, delayed by cuts; lost only with one of the two processes, and
/// on_peer_restarted tells of the other's new life.
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

/// What a node may do to the world around it; valid only during the call it is passed to.
template <class M>
class Env {
 public:
  NodeIndex self() const noexcept { return self_; }
  std::size_t node_count() const noexcept { return world_.node_count(); }
  /// Which life of this node this is, from 0.
  std::uint32_t incarnation() const noexcept { return world_.incarnation(self_); }
  /// This node's monotonic clock. Each machine's starts elsewhere, so do not send it to others.
  Time now() const noexcept { return world_.node_now(self_); }
  /// This machine's clock that goes on while it sleeps; now() does not.
  Time up_time() const noexcept { return world_.up_time_of(self_); }
  /// The wall clock in nanoseconds; it jumps.
  std::int64_t wall_clock() const noexcept { return world_.wall_clock(self_); }
  /// Hands a message to the network. Never fails; whether it arrives is the network's affair.
  void send(NodeIndex to, M message) { world_.send(self_, to, std::move(message)); }
  /// on_timer(id) at that time of this node's clock; replaces the earlier timer of this id.
  void set_timer(std::uint64_t id, Time at) { world_.set_timer(self_, id, at); }
  /// The same, but an earlier timer of this id stays when it comes first.
  void set_timer_by(std::uint64_t id, Time at) { world_.set_timer_by(self_, id, at); }
  void cancel_timer(std::uint64_t id) { world_.cancel_timer(self_, id); }
  /// Random numbers of this node alone.
  Random& random() noexcept { return world_.node_random(self_); }
  /// The machine's storage, or null. It survives the process.
  Disk* disk() noexcept { return world_.disk(self_); }
  /// This process ends itself after the current call, as by exit(2); world.start() revives it.
  void exit() { world_.exit_soon(self_); }
  /// One call of the workload was made; a schedule with few calls proves nothing.
  void count_call() noexcept { world_.count_call(); }
  /// A broken promise ends the run with this sentence.
  void check(bool holds, const char* why) { world_.check(holds, why); }
  World<M>& world() noexcept { return world_; }

 private:
  friend class World<M>;
  Env(World<M>& world, NodeIndex self) noexcept : world_(world), self_(self) {}
  World<M>& world_;
  NodeIndex self_;
};

/// One process. It is destroyed when it is killed and made anew by the factory at its restart.
template <class M>
class Node {
 public:
  virtual ~Node() = default;
  virtual void on_start(Env<M>&) {}
  virtual void on_message(Env<M>& env, NodeIndex from, M message) = 0;
  virtual void on_timer(Env<M>&, std::uint64_t) {}
  /// Whether that timer is of a process of its own, which goes on while this one stands still
  /// alone.
  virtual bool goes_on(std::uint64_t /*timer*/) const { return false; }
  /// Whether that timer's time passes while its machine sleeps, as up_time() does.
  virtual bool counts_sleep(std::uint64_t /*timer*/) const { return false; }
  /// The connection to a peer closed or was opened again (a peer's death by signal closes too; a
  /// crashed machine or a cut route says nothing).
  virtual void on_connection(Env<M>&, NodeIndex, bool /*up*/) {}
  /// Reliable delivery only, before the first message of a peer's new life: what was sent to the
  /// old one and not answered may or may not have been handled.
  virtual void on_peer_restarted(Env<M>&, NodeIndex) {}
};

struct WorldOptions {
  std::uint64_t seed = 0;
  std::size_t nodes = 3;
  Delivery delivery = Delivery::datagram;
  FaultPlan plan = FaultPlan::calm();
  /// Killed nodes come back by themselves (after plan.longest_down at most).
  bool restart = true;
  /// Larger faults that are left out, by their number in the schedule: for shrinking a failure.
  std::set<std::uint64_t> muted;
  std::uint64_t most_events = ~std::uint64_t{0};  ///< more are a livelock
};

struct Phases {
  Duration faults_for{};
  Duration liveness_within{};
  /// Whether all work is done; asked after every event of the liveness phase.
  std::function<bool()> done;
};

/// What a run was. `violation` is empty when every promise held.
struct Report {
  std::uint64_t seed = 0;
  std::uint64_t trace = 0;
  std::uint64_t events = 0;
  std::uint64_t calls = 0;
  std::size_t nodes = 0;
  FaultCounts faults;
  Duration virtual_time{};
  std::string violation;

  /// A quiet schedule proves nothing and does not count.
  bool counts() const noexcept { return nodes >= 3 && calls >= 100 && faults.total() >= 5; }
};

template <class M>
class World {
 public:
  using Factory = std::function<std::unique_ptr<Node<M>>(NodeIndex)>;
  using Call = std::function<void()>;

  World(const WorldOptions& options, Factory factory);

  // Build: before run().
  void attach_disk(NodeIndex node, std::shared_ptr<Disk> disk) {
    members_[node].disk = std::move(disk);
  }
  /// Asked after every event; a non-empty answer is a violation.
  void add_invariant(std::function<std::string()> invariant) {
    invariants_.push_back(std::move(invariant));
  }
  /// Runs `call` at that virtual time (a scripted fault, a workload from outside).
  void at(Duration when, Call call);

  /// Runs both phases once. Ends early at the first violation.
  Report run(const Phases& phases);

  // Use: from nodes, scripts and invariants.
  /// The node's object, or null while it is dead.
  Node<M>* node(NodeIndex i) noexcept { return members_[i].node.get(); }
  /// Calls `use(env)` as if from inside the node; does nothing while it is dead or paused.
  template <class Use>
  bool with(NodeIndex i, Use&& use) {
    if (!alive(i) || members_[i].paused) return false;
    Env<M> env(*this, i);
    use(env);
    finish_call(i);
    return true;
  }
  /// The same, also while it stands still alone: something is done to what goes on beside it.
  template <class Use>
  bool beside(NodeIndex i, Use&& use) {
    if (!stopped_alone(i)) return with(i, use);
    Env<M> env(*this, i);
    use(env);
    return true;
  }
  bool alive(NodeIndex i) const noexcept { return members_[i].node != nullptr; }
  bool paused(NodeIndex i) const noexcept { return members_[i].paused; }
  /// When it went on after its last pause; the beginning of time: it was never paused.
  Time resumed_at(NodeIndex i) const noexcept { return members_[i].resumed; }
  bool stopped_alone(NodeIndex i) const noexcept { return members_[i].alone; }
  bool faulting() const noexcept { return faulting_; }
  /// Larger faults that the schedule held so far, muted ones included.
  std::uint64_t ticks() const noexcept { return ticks_; }
  Time now() const noexcept { return now_; }
  /// What that machine's own clocks say.
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

  // Faults by hand; the plan uses the same ones.
  /// Injects one fault of a kind at a random place. False when there was no place for it.
  bool inject(Fault fault);
  /// Closed sockets tell the peers; the files stay.
  void kill(NodeIndex i) { end_process(i, false, Fault::kill); }
  /// The machine dies silently and its unsynced writes with it.
  void crash(NodeIndex i) { end_process(i, true, Fault::crash); }
  void start(NodeIndex i);
  void pause(NodeIndex i, Duration length, Fault kind = Fault::pause);
  /// A machine's first process stands still, as by SIGSTOP, and those beside it go on
  /// (Node::goes_on). Counted by who calls it: false when it is dead or stands still already.
  bool stop_alone(NodeIndex i, Duration length);
  /// A machine stands still with all that is on it, and its clock goes on. Counted by who calls
  /// it: false when it is dead or stands still already.
  bool stand_still(NodeIndex i, Duration length);
  /// A machine sleeps with all that is on it: nothing runs, its clock stands still, and its timers
  /// take as much longer (Node::counts_sleep). False when it is dead or stands still already.
  bool sleep(NodeIndex i, Duration length);
  void cut(Cut cut, Duration length);
  /// One node from all others.
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
    std::uint64_t tag = 0;  // connection, timer, cut or call
    M message{};
  };
  struct Member {
    std::unique_ptr<Node<M>> node;
    std::shared_ptr<Disk> disk;
    std::uint32_t incarnation = 0;
    bool started = false, paused = false, exiting = false;
    bool alone = false;  // paused, and what is beside it goes on
    bool asleep = false;
    Time asleep_since{}, resumed{};
    std::vector<std::pair<std::uint64_t, Duration>> asleep_timers;  // id, what is left
    Duration clock_offset{}, slept{};
    std::int64_t wall_offset = 0;
    Random random{0};
    FlatMap<std::uint64_t, std::uint32_t> timers;  // id -> its slot, or kHeld
    std::deque<Event> held;                        // what came while it was paused
    std::vector<bool> contacts;                    // with whom it has exchanged messages
  };

  /// In place of a slot: the timer's time came while its node was paused.
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
  std::vector<std::unique_ptr<Event[]>> slots_;  // stay where they are
  std::uint32_t slot_count_ = 0;
  std::vector<std::uint32_t> free_;
  std::deque<Call> calls_;                         // one that runs may add others
  std::map<RouteKey, std::deque<Event>> blocked_;  // reliable delivery: waiting for a cut to end
  Trace trace_;
  Report report_;
  Time now_{};
  std::uint64_t ticks_ = 0;
  bool faulting_ = true;
};

}  // namespace troupe::sim

#include "tests/simulation/kernel/world_impl.hpp"
