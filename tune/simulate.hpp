/// Runs an experiment in virtual time with a function in place of real trials: to compare
/// schedulers in milliseconds, and to test them.
///
///     Simulator sim(experiment, {.train = [](std::vector<double>& w, const Point& hp, long) {
///                                  w[0] += hp[0];
///                                  return w[0];
///                                }, .weights = {0.0}});
///     sim.run();
///     std::cout << experiment.board().seconds;   // virtual seconds
#pragma once

#include "troupe/tune/experiment.hpp"

#include <functional>
#include <queue>

namespace troupe::tune {

struct Simulation {
  /// One step of training: changes the weights, returns the score.
  std::function<double(std::vector<double>& weights, const Point& params, long step)> train;
  std::vector<double> weights = {};  ///< of a new trial
  /// Virtual seconds that a step takes; a second when absent. Less than nothing is nothing; a step
  /// that would end after a hundred years never ends.
  std::function<double(const Point& params, long step)> step_seconds = {};
  /// An error before that step makes the attempt fail; empty text means none.
  std::function<std::string(int trial, int attempt, long step)> fault = {};
  double save_seconds = 0.01;  ///< read like those of a step
  bool can_save = true;
  bool obeys = true;  ///< false: trials that are told to return go on until they are killed
};

class TROUPE_API Simulator {
 public:
  /// The experiment must outlive the simulator.
  Simulator(Experiment& experiment, Simulation simulation);
  /// Begins (or, after restore(), goes on with) the experiment and runs until it is over or
  /// `events` have happened. InvalidArgument when nothing can happen any more.
  void run(std::size_t events = static_cast<std::size_t>(-1));
  Time now() const noexcept { return now_; }
  /// The experiment's log so far.
  const std::vector<std::string>& log() const noexcept { return log_; }
  /// Checkpoints that exist, by key.
  const std::map<std::string, std::vector<double>>& stored() const noexcept { return stored_; }
  /// Checkpoints of an earlier run, for experiments that were restored.
  void load(std::map<std::string, std::vector<double>> stored) { stored_ = std::move(stored); }

 private:
  enum class What { restored, report, saved, ended };
  struct Pending {
    Time at;
    std::uint64_t order;
    What what;
    int trial;
    int attempt;
    Checkpoint checkpoint;
    std::string error;
    friend bool operator>(const Pending& a, const Pending& b) {
      return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
  };
  struct Attempt {
    int number = 0;
    Point params;
    std::vector<double> weights;
    long step = 0;
    bool alive = false;
    Time busy_until{};  ///< saving
    std::vector<double> saving;
  };
  void at(Time when, What what, int trial, Checkpoint checkpoint = {}, std::string error = {});
  void next_step(int trial);
  void happen(const Pending& p);
  void carry_out(const Command& command);

  Experiment& experiment_;
  Simulation simulation_;
  Time now_{};
  std::uint64_t order_ = 0;
  std::priority_queue<Pending, std::vector<Pending>, std::greater<>> pending_;
  std::map<int, Attempt> attempts_;
  std::map<std::string, std::vector<double>> stored_;
  std::vector<std::string> log_;
  bool begun_ = false;
};

}  // namespace troupe::tune
