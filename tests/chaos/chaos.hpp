/// The chaos program. It keeps load on a real cluster, injects faults, and reports whether
/// anything was lost, duplicated, wrong or hung.
///
///     Chaos chaos(options);
///     int code = chaos.run();      // 0, or 1 when anything was lost, duplicated, hung or wrong
#pragma once

#include "tests/chaos/busy.hpp"
#include "tests/chaos/cluster.hpp"
#include "tests/chaos/driver.hpp"
#include "tests/chaos/proxy.hpp"

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace chaos {

struct Options {
  double minutes = 1;
  int rounds = 0;  ///< stop after this many clusters; 0: only after `minutes`
  std::uint64_t seed = 1;
  std::vector<std::string> only;  ///< kinds; empty: all
  std::string report;             ///< file for a report in JSON; empty: none
  std::string canary;
  int nodes = 4;
  int floor = 20;  ///< fewer operations a second are too little load
  int bound = 60;  ///< seconds within which all must work again after a fault
  int busy = 0;    ///< per cent of each CPU kept busy all the time
  std::string command, program, shim;
  bool verbose = false;
};

/// The results of one kind of fault.
struct Row {
  std::uint64_t injected = 0, missed = 0;  ///< missed: the fault did not take effect
  Work work;
  std::uint64_t lost = 0, duplicated = 0, hung = 0, wrong = 0;
  std::vector<double> recovery;  ///< in ms
  std::string skipped;           ///< why this machine cannot inject it
};

class Chaos {
 public:
  explicit Chaos(Options options);
  ~Chaos();
  int run();
  static std::vector<std::string> kinds();

 private:
  /// A fault that took effect.
  struct Injected {
    Clock::time_point at = Clock::now();  ///< recovery is measured from here
    bool new_driver = false;              ///< the fault struck the load itself
  };
  using Effect = std::optional<Injected>;
  using Fault = Effect (Chaos::*)();
  struct Kind {
    const char* name;
    Fault inject;
    bool risky;  ///< objects may be lost with their node
    bool round;  ///< the fault ends the cluster
  };
  static const std::vector<Kind>& all_kinds();
  static const Kind* kind_named(const std::string& name);

  // rounds (chaos.cpp)
  void begin_round();
  bool has_time(Clock::time_point until) const;
  bool is_over() const;
  void one_fault(const Kind& kind);
  void check_bystanders(const std::string& kind);
  void restore_nodes(const std::string& kind);
  void new_driver();
  void take_bad(const std::string& kind);
  void bad(const std::string& kind, const std::string& what, const std::string& text);
  void audit(const std::string& kind);
  const Kind* next_kind();
  bool end_round(const Kind* how);
  void expect_nothing_left(const std::string& kind, Clock::time_point since);
  void sleep(std::chrono::milliseconds time);

  // results (report.cpp)
  int report();

  // faults (faults.cpp)
  Effect kill_now(int pid, const std::string& name);
  std::vector<int> workers(bool of_actors);
  Node* victim(bool head_too = false);
  Effect stop_for(const std::vector<int>& pids, std::chrono::milliseconds time, bool from_begin);
  Effect hold_for(std::chrono::milliseconds time, bool from_begin);
  Effect worker_killed();
  Effect worker_crashed();
  Effect actor_killed();
  Effect zygote_killed();
  Effect agent_killed();
  Effect launcher_killed();
  Effect home_killed();
  Effect control_killed();
  Effect agent_and_control_killed();
  Effect driver_killed();
  Effect worker_stopped();
  Effect agent_stopped();
  Effect agent_stopped_long();
  Effect node_stopped();
  Effect control_stopped();
  Effect control_stopped_long();
  Effect node_slow();
  Effect partition();
  Effect partition_long();
  Effect partition_pair();
  Effect partition_one_way();
  Effect control_cut_off();
  Effect delayed();
  Effect connections_cut();
  Effect clock_jumped();
  Effect machines_slept();
  Effect cpu_starved();

  // faults of the machine (machine.cpp)
  Effect memory_hogged();
  Effect disk_filled();
  Effect data_damaged();
  Effect everything_killed();
  Effect everything_ended();

  Options options_;
  std::string folder_, ledger_, data_;
  Page* page_ = nullptr;
  std::unique_ptr<Proxy> proxy_;
  std::mt19937_64 random_;
  std::map<std::string, Row> rows_;
  std::vector<const Kind*> bag_;
  std::vector<std::string> messages_;

  // The state of one round, that is, of one cluster.
  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<Driver> driver_;
  Work before_;  ///< done by drivers that have ended
  Clock::time_point begun_ = Clock::now();
  Clock::time_point round_begun_{};
  std::vector<double> control_kills_;
  int faults_ = 0, rounds_ = 0, drivers_ = 0, drivers_of_round_ = 0;
  std::uint64_t marks_ = 0;
  bool on_tmpfs_ = false;
  double load_seconds_ = 0;
  Work total_;
  BusyCpus busy_cpus_;
};

}  // namespace chaos
