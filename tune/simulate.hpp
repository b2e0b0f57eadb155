/// Simulator: runs an experiment in virtual time with a function in place of real trials, to test
/// schedulers and to compare them within milliseconds.
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

/// The simulated trials.
struct Simulation {
  /// One step of training: changes the weights, returns the score.
  std::function<double(std::vector<double>& weights, const Point& params, long step)> train;
  std::vector<double> weights = {};  ///< of a new trial
  /// Virtual seconds that a step takes; without a function, one second. Negative values count as 0.
  /// A step that would end after 100 years of virtual time never ends.
  std::function<double(const Point& params, long step)> step_seconds = {};
  /// Returns the error with which the attempt fails before that step; empty for no error.
  std::function<std::string(int trial, int attempt, long step)> fault = {};
  double save_seconds = 0.01;  ///< virtual seconds that a save takes; same rules as step_seconds
  double file_seconds = 0;     ///< virtual seconds until a checkpoint of a study has its file
  bool can_save = true;        ///< reports offer a model
  bool obeys = true;           ///< false: trials ignore the request to return until they are killed
};

/// The store of a simulated study: what a restart finds.
struct SimulatedStore {
  std::string meta;                                  ///< the first line for Experiment::restore()
  std::vector<std::string> events;                   ///< the lines after it
  std::map<std::uint32_t, std::string> trials;       ///< rows
  std::map<std::string, std::string> checkpoints;    ///< rows
  std::map<std::string, std::vector<double>> files;  ///< weights on disk, by key
  std::map<std::string, Point> saved_with;           ///< the parameters of each checkpoint's trial
  std::function<void(const StudyBatch&)> written = {};  ///< called after each batch
};

/// Carries out an experiment's commands on the simulated trials.
class TROUPE_API Simulator {
 public:
  /// The experiment must outlive the simulator.
  Simulator(Experiment& experiment, Simulation simulation);
  /// Begins the experiment, or continues it after restore(), and runs until it is over or so many
  /// events have happened. Throws InvalidArgument when the experiment is not over and no event is
  /// pending.
  void run(std::size_t events = static_cast<std::size_t>(-1));
  Time now() const noexcept { return now_; }
  /// Makes the experiment a study with this store, which must outlive the simulator. Call it before
  /// run(). Commands are carried out only after their batch is in the store.
  void keep(SimulatedStore& store);
  /// The starts of attempts so far.
  const std::vector<Start>& starts() const noexcept { return starts_; }
  /// How many reports were answered with leave to go on.
  std::size_t replies() const noexcept { return replies_; }
  /// How many attempts were started from a checkpoint that was nowhere.
  int without_weights() const noexcept { return without_weights_; }
  /// The experiment's log so far.
  const std::vector<std::string>& log() const noexcept { return log_; }
  /// The weights of all checkpoints that were not dropped, by key.
  const std::map<std::string, std::vector<double>>& stored() const noexcept { return stored_; }
  /// Supplies the checkpoints of an earlier run to an experiment that was restored.
  void load(std::map<std::string, std::vector<double>> stored) { stored_ = std::move(stored); }

 private:
  enum class What { restored, report, saved, ended, stored };
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
    Time busy_until{};  ///< the end of the save in progress
    std::vector<double> saving;
  };
  void at(Time when, What what, int trial, Checkpoint checkpoint = {}, std::string error = {});
  void next_step(int trial);
  void begin(const Start& start);
  void write();
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
  std::vector<Start> starts_;
  std::size_t replies_ = 0;
  int without_weights_ = 0;
  SimulatedStore* store_ = nullptr;
  Time writer_free_{};  ///< when the thread that writes files has nothing to do
  bool begun_ = false;
};

}  // namespace troupe::tune
