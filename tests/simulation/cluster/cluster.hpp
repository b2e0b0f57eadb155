/// A whole simulated cluster: control on machine 0, an agent with drivers and workers on every
/// other. One seed fixes its size, what its drivers do, every fault and when.
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

/// What is taken away from a seed's schedule: for replays and for shrinking.
struct Tuning {
  std::set<std::string> off;      ///< kinds of fault, or parts of the workload
  std::set<std::uint64_t> muted;  ///< numbers of single faults of the plan
  std::uint64_t most_actions = ~std::uint64_t{0};
  bool canary = false;   ///< plant a bug that every run must find
  bool verbose = false;  ///< say what nodes say to each other, and of their processes

  std::string text() const;
};

/// What a schedule is about.
enum class Theme : std::uint8_t { any, control_dies, talks_break, long_cut, long_stop };

/// What a seed makes of a cluster.
struct Plan {
  static Plan of(std::uint64_t seed, const Tuning& tuning);
  Theme theme = Theme::any;
  std::size_t machines = 4;
  std::set<sim::NodeIndex> drivers;
  std::vector<double> cpus;
  Workload workload;
  sim::FaultPlan faults;
  Duration faults_for{};
  std::array<double, kFaultMarks> strikes{};  ///< weights
  Duration between_strikes{};
  double trouble = 0, slow_starts = 0, failed_starts = 0;
  bool late_passes = false, late_rings = false, small_backlog = false, small_window = false;
  std::size_t ring_capacity = 32;
  std::uint64_t carry_window = wire::kCarryWindow;
  std::size_t fan = 2;             ///< of those that a node sends an object to
  agent::PlanOptions transfers;    ///< of a node: how much is under way, how long a way stays open
  double aim = 0;                  ///< how likely control dies of what it is told
  double power_cuts = 0;           ///< how likely control's machine dies while it writes
  double idle_kills = 0;           ///< how likely an idle worker dies when another node wants one
  double in_flight_kills = 0;      ///< how likely a worker dies between a count and its frame
  double maker_kills = 0;          ///< how likely a node dies while control keeps its spawn
  double slow_news = 0;            ///< how likely an actor's death is heard late by other nodes
  Duration cut_at{}, cut_for{};    ///< one node from all others; zero: not
  Duration stop_at{}, stop_for{};  ///< of an agent, for longer than control waits; zero: not
  Duration between_stops{};        ///< of agents, most of them short; zero: none
  double sleeps = 0.4;             ///< how likely it is a machine that sleeps instead
  /// When every machine stands still at once, and for how long; none: never. Else nothing is done
  /// to a machine or to what connects them.
  std::vector<std::pair<Duration, Duration>> standstills;
  Duration away_at{};            ///< control is silent from then on; zero: it dies when it may
  sim::NodeIndex slow_node = 0;  ///< its tasks take long, by what it tells control; 0: none tells
  std::size_t old_jobs = 0;      ///< ended long ago, as many as control keeps; 0: it keeps all
  Duration restarts_apart = std::chrono::milliseconds(100);  ///< of an actor that has no limit
};

class Cluster {
 public:
  Cluster(std::uint64_t seed, const Tuning& tuning);
  ~Cluster();
  sim::Report run();
  /// Single faults that the plan held, muted ones included.
  std::uint64_t planned() const noexcept { return world.ticks() + strikes_ + stops_; }

  // For its machines.
  NodeId control_id() const { return NodeId{1, 0}; }
  scheduling::LeaseOptions lease_options(sim::NodeIndex self) const;
  net::LinkOptions link_options();
  Random& shell_random(sim::NodeIndex self) { return shell_randoms_[self]; }
  bool has_driver(sim::NodeIndex self) const { return plan.drivers.count(self) != 0; }
  std::uint64_t next_driver() { return ++last_driver_; }
  /// A rate of faults; zero once they have stopped.
  double fault_rate(double rate) const { return world.faulting() ? rate : 0; }
  bool is_gone(NodeId node);
  /// Control is about to start its actors elsewhere.
  void declared_dead(NodeId node);
  /// Control says that it is a member.
  void taken_in(NodeId node);
  void taken_for_dead(NodeId node);
  /// A node ends itself, for what it says.
  void ends_itself(const std::string& why);
  /// Whether any process hosts a life of it, up to that one.
  bool actor_lives(ActorId actor, std::uint64_t newest = ~std::uint64_t{0});
  /// What lives though it is to end, in words: lives that were killed, if another may follow, for
  /// which the node must live that has said so; and actors whose makers were refused them and live.
  std::string outlived();
  /// Whether it has a process on another node, whose agent stands still.
  bool lives_beside(ActorId actor, sim::NodeIndex but);
  /// Something is said to control that must not be lost with it.
  void moment();
  /// Control has sent that node what ends an actor.
  void stop_is_told(NodeId node);
  /// Control writes to its disk, which takes so long.
  void commit_begins(Duration takes);
  /// Control keeps a spawn until it has heard of all nodes of before.
  void spawn_waits(NodeId maker);
  /// An actor has died on that machine.
  void slow_news(sim::NodeIndex from);
  bool next_life_waits(sim::NodeIndex at);
  bool canary() const { return tuning_.canary; }
  bool verbose() const { return tuning_.verbose; }
  void acknowledged(const control::Service& service, ActorId actor);
  void check_acknowledged(const control::Service& service, bool at_the_end);

  Plan plan;
  Truth truth;
  std::shared_ptr<ControlDisk> disk;  ///< what its process leaves goes there, also at the end
  sim::World<Packet> world;
  std::vector<std::unique_ptr<Process>> graveyard;

 private:
  static sim::WorldOptions options_of(std::uint64_t seed, const Plan& plan, const Tuning& tuning);
  std::unique_ptr<sim::Node<Packet>> make(sim::NodeIndex i);
  Agent* agent(sim::NodeIndex i) { return static_cast<Agent*>(world.node(i)); }
  ControlNode* control() { return static_cast<ControlNode*>(world.node(0)); }
  /// `had_roster`: when it was looked at last.
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
  std::set<NodeId> dead_;                      ///< as control has declared
  std::map<sim::NodeIndex, Time> awake_from_;  ///< machines that have slept
  std::uint64_t last_driver_ = 0, strikes_ = 0, stops_ = 0, aimed_ = 0, power_cuts_ = 0;
  Time next_look_{}, next_end_{};
  std::optional<Time> room_since_;  ///< for an actor that waits at control
  bool calmed_ = false;
};

/// One schedule, from a seed to its report.
sim::Report run_schedule(std::uint64_t seed, const Tuning& tuning, Truth* truth = nullptr,
                         std::uint64_t* planned = nullptr);

}  // namespace troupe::sim::cluster
