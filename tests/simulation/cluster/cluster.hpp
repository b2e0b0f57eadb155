/// A whole simulated cluster: control on machine 0, and an agent with drivers and workers on
/// every other machine. One seed fixes its size, the work of its drivers, and every fault with
/// its time.
///
///     Cluster cluster(seed, {});
///     sim::Report report = cluster.run();                      // report.violation
///     Cluster(seed, {.off = {"kill_worker"}}).run();            // the same without one kind
#pragma once

#include "tests/simulation/cluster/agent.hpp"
#include "tests/simulation/cluster/control_node.hpp"
#include "tests/simulation/cluster/truth.hpp"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace troupe::sim::cluster {

/// Parts of a seed's schedule that are left out, for replays and for shrinking.
struct Tuning {
  std::set<std::string> off;      ///< kinds of fault, or parts of the workload
  std::set<std::uint64_t> muted;  ///< numbers of single faults of the plan
  std::uint64_t most_actions = ~std::uint64_t{0};
  bool canary = false;   ///< plant a bug that must be found
  bool verbose = false;  ///< log messages between nodes and events of processes

  std::string text() const;
};

/// The subject of a schedule.
enum class Theme : std::uint8_t { any, control_dies, talks_break, long_cut, long_stop };

/// The parameters of a schedule, computed from its seed.
struct Plan {
  static Plan of(std::uint64_t seed, const Tuning& tuning);
  Theme theme = Theme::any;
  std::size_t machines = 4;
  std::set<sim::NodeIndex> drivers;
  std::vector<double> cpus;
  Workload workload;
  sim::FaultPlan faults;
  Duration faults_for{};
  std::array<double, kFaultMarks> strikes{};  ///< weight of each kind
  Duration between_strikes{};
  double trouble = 0, slow_starts = 0, failed_starts = 0;
  bool late_passes = false, late_rings = false, small_backlog = false, small_window = false;
  std::size_t ring_capacity = 32;
  std::uint64_t carry_window = wire::kCarryWindow;
  std::size_t fan = 2;             ///< nodes to which a node sends one object
  agent::PlanOptions transfers;    ///< limits of each node's transfers
  double aim = 0;                  ///< chance that control dies of a message it just got
  double power_cuts = 0;           ///< chance that control's machine dies during a write
  double idle_kills = 0;           ///< chance that an idle worker dies when another node wants one
  double in_flight_kills = 0;      ///< chance that a worker dies between a count and its frame
  double maker_kills = 0;          ///< chance that a node dies while control keeps its spawn
  double slow_news = 0;            ///< chance that other nodes learn late of an actor's death
  Duration cut_at{}, cut_for{};    ///< one node cut off from all others; zero: none
  Duration stop_at{}, stop_for{};  ///< of an agent, for longer than control waits; zero: none
  Duration between_stops{};        ///< of agents, most of them short; zero: none
  double sleeps = 0.4;             ///< chance that a stop is a sleep of the whole machine
  /// When every machine stands still at once, and for how long. A plan with standstills has no
  /// other fault of machines or connections.
  std::vector<std::pair<Duration, Duration>> standstills;
  Duration away_at{};            ///< when control falls silent; zero: never
  sim::NodeIndex slow_node = 0;  ///< its reported run times are long; 0: no node reports any
  std::size_t old_jobs = 0;      ///< jobs that ended long ago and that control keeps; 0: default
  Duration restarts_apart = std::chrono::milliseconds(100);  ///< for actors without a restart limit
};

class Cluster {
 public:
  Cluster(std::uint64_t seed, const Tuning& tuning);
  ~Cluster();
  sim::Report run();
  /// Returns the number of single faults in the plan, including muted ones.
  std::uint64_t planned() const noexcept { return world.ticks() + strikes_ + stops_; }

  // For its machines.
  NodeId control_id() const { return NodeId{1, 0}; }
  scheduling::LeaseOptions lease_options(sim::NodeIndex self) const;
  net::LinkOptions link_options();
  Random& shell_random(sim::NodeIndex self) { return shell_randoms_[self]; }
  bool has_driver(sim::NodeIndex self) const { return plan.drivers.count(self) != 0; }
  std::uint64_t next_driver() { return ++last_driver_; }
  /// Returns `rate`, or zero once the faults have stopped.
  double fault_rate(double rate) const { return world.faulting() ? rate : 0; }
  bool is_gone(NodeId node);
  /// Called when control declares a node dead and is about to start its actors elsewhere. Fails
  /// the run if the node may still serve.
  void declared_dead(NodeId node);
  /// Called when control says that a node is a member.
  void taken_in(NodeId node);
  void taken_for_dead(NodeId node);
  /// Called when a node ends itself, with its reason. Fails the run if no fault justifies that.
  void ends_itself(const std::string& why);
  /// Returns whether any process hosts a life of `actor` that is not newer than `newest`.
  bool actor_lives(ActorId actor, std::uint64_t newest = ~std::uint64_t{0});
  /// Describes in words which processes live although they should end: lives that were killed
  /// with a restart, while the node that sent the kill lives, and actors whose makers were told
  /// that they do not exist.
  std::string outlived();
  /// Returns whether the actor has a process on a node other than `but` whose agent is stopped.
  bool lives_beside(ActorId actor, sim::NodeIndex but);
  /// Called when a node has told control something that must not be lost with control. May kill
  /// control soon after.
  void moment();
  /// Called when control has sent a node the message that ends an actor.
  void stop_is_told(NodeId node);
  /// Called when control begins a write that takes this long. May crash control's machine during
  /// it.
  void commit_begins(Duration takes);
  /// Called when control keeps a spawn until all nodes of the earlier roster have reported. May
  /// kill the maker's node.
  void spawn_waits(NodeId maker);
  /// Called when an actor has died on that machine. May delay the news to other nodes.
  void slow_news(sim::NodeIndex from);
  bool next_life_waits(sim::NodeIndex at);
  bool canary() const { return tuning_.canary; }
  bool verbose() const { return tuning_.verbose; }
  void acknowledged(const control::Service& service, ActorId actor);
  void check_acknowledged(const control::Service& service, bool at_the_end);

  Plan plan;
  Truth truth;
  std::shared_ptr<ControlDisk> disk;  ///< keeps what control's process leaves behind
  sim::World<Packet> world;
  std::vector<std::unique_ptr<Process>> graveyard;

 private:
  static sim::WorldOptions options_of(std::uint64_t seed, const Plan& plan, const Tuning& tuning);
  std::unique_ptr<sim::Node<Packet>> make(sim::NodeIndex i);
  Agent* agent(sim::NodeIndex i) { return static_cast<Agent*>(world.node(i)); }
  ControlNode* control() { return static_cast<ControlNode*>(world.node(0)); }
  /// `had_roster`: whether the node had a roster at the previous look.
  void expect_exit(NodeId node, bool had_roster);
  bool may_serve(sim::NodeIndex i);
  bool aims();
  void end_control(Duration after);
  void schedule_strikes();
  void schedule_stops();
  void stop_all(Duration length);
  void stop_an_agent(sim::NodeIndex from, Duration length, bool sleeps);
  void strike(Mark kind, sim::NodeIndex victim);
  bool done();
  void check_placing(const control::Service& service);
  std::string left_at_control();
  void end_detached();
  std::string why_not_done();

  std::uint64_t seed_;
  Tuning tuning_;
  Random aim_, power_, still_;
  std::vector<Random> shell_randoms_;
  std::set<NodeId> dead_;                      ///< declared dead by control
  std::map<sim::NodeIndex, Time> awake_from_;  ///< machines that have slept
  std::uint64_t last_driver_ = 0, strikes_ = 0, stops_ = 0, aimed_ = 0, power_cuts_ = 0;
  Time next_look_{}, next_end_{};
  std::optional<Time> room_since_;  ///< since when an actor that waits at control has room
  bool calmed_ = false;
};

/// Runs one schedule and returns its report.
sim::Report run_schedule(std::uint64_t seed, const Tuning& tuning, Truth* truth = nullptr,
                         std::uint64_t* planned = nullptr);

}  // namespace troupe::sim::cluster
