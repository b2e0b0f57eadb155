/// The schedulers behind make_scheduler(), one class each; semantics as in scheduler.hpp.
#pragma once

#include "troupe/tune/scheduler.hpp"

#include <map>

namespace troupe::tune {

/// Options that a scheduler cannot work with.
[[noreturn]] inline void refuse(const std::string& who, const std::string& why) {
  throw InvalidArgument(Code::invalid_argument, "tune::" + who + ": " + why);
}

class PbtScheduler final : public Scheduler {
 public:
  PbtScheduler(const Pbt& options, const SchedulerSetup& setup);
  void created(int trial, const Point& params) override;
  void reported(const Report& report, std::vector<Decision>& out) override;
  void finished(int trial, std::vector<Decision>& out) override;
  void failed(int trial, std::vector<Decision>& out) override;
  void population(int trials, std::vector<Decision>& out) override;
  void kept(int trial, const Point& params) override;
  int pick(const std::vector<int>& waiting) override;

  /// Parameters of a copy: each drawn anew or moved a little.
  Point explore(const Point& donor);

 private:
  struct Member {
    Point params;
    bool done = false;
    bool has_score = false;
    double gain = 0;  ///< larger is better
    long last_step = 0;
    long last_perturb = 0;
    bool can_save = false;
    bool offered = false;  ///< some report of it offered a model
    bool saved = false;    ///< has (or was told to make) a checkpoint of its last interval
    bool held = false;
    bool sick = false;  ///< its last score was no number: worst of all, and nobody copies it
  };
  struct Quantiles {
    std::vector<int> top;
    std::vector<int> bottom;
  };
  Quantiles quantiles() const;
  void decide(int trial, const Report& report, std::vector<Decision>& out);
  std::vector<int> donors(const std::vector<int>& top) const;
  bool exploit(int trial, const std::vector<int>& top, Decision& decision);
  double moved(const Domain& domain, double value);
  void leave(int trial, std::vector<Decision>& out);
  void try_barrier(std::vector<Decision>& out);
  void pass_barrier(std::vector<Decision>& out);

  Pbt options_;
  SearchSpace space_;
  Goal goal_;
  int population_;
  Random random_;
  std::map<int, Member> members_;
  long next_sync_ = 0;
};

class AsyncHyperBandScheduler final : public Scheduler {
 public:
  AsyncHyperBandScheduler(const AsyncHyperBand& options, const SchedulerSetup& setup);
  void created(int trial, const Point& params) override;
  void reported(const Report& report, std::vector<Decision>& out) override;
  void finished(int trial, std::vector<Decision>& out) override;
  /// Steps of the rungs of a bracket, lowest first.
  static std::vector<double> rung_steps(const AsyncHyperBand& options, int bracket);

 private:
  struct RungState {
    double steps = 0;
    std::vector<double> gains;
  };
  struct Place {
    std::size_t bracket = 0;
    std::size_t next_rung = 0;  ///< rungs below were recorded or skipped
    long step = 0;
    double gain = 0;
    bool reported = false;
  };
  /// Records the trial at the highest rung it has reached; the cutoff from before, if any.
  std::optional<double> record(Place& place);

  AsyncHyperBand options_;
  Goal goal_;
  Random random_;
  std::vector<std::vector<RungState>> brackets_;
  std::map<int, Place> places_;
};

class SuccessiveHalvingScheduler final : public Scheduler {
 public:
  SuccessiveHalvingScheduler(const SuccessiveHalving& options, const SchedulerSetup& setup);
  void reported(const Report& report, std::vector<Decision>& out) override;

 private:
  double rung_step(std::size_t rung) const;
  SuccessiveHalving options_;
  Goal goal_;
  std::vector<std::vector<double>> rungs_;  ///< gains recorded at each rung
  std::map<int, std::size_t> next_rung_;
};

class MedianScheduler final : public Scheduler {
 public:
  MedianScheduler(const MedianStopping& options, const SchedulerSetup& setup);
  void reported(const Report& report, std::vector<Decision>& out) override;

 private:
  /// What is known of a trial up to a step, so that a report costs no walk through all others'.
  struct Sample {
    long step = 0;
    double best = 0;  ///< gain
    long count = 0;   ///< of numbers from step grace on
    double first = 0;
    long double above = 0;  ///< sum of their differences to the first: equal gains have that mean
    double infinite = 0;    ///< sum of the infinite ones, which are the mean then
    double mean() const {
      if (infinite != 0) return infinite;
      return static_cast<double>(first + above / static_cast<long double>(count));
    }
  };
  MedianStopping options_;
  Goal goal_;
  std::map<int, std::vector<Sample>> history_;  ///< by step
};

class PercentileScheduler final : public Scheduler {
 public:
  PercentileScheduler(const PercentileStopping& options, const SchedulerSetup& setup);
  void reported(const Report& report, std::vector<Decision>& out) override;
  void finished(int trial, std::vector<Decision>& out) override;

 private:
  struct Point {
    double gain = 0;
    double best = 0;  ///< up to here; NaN while there is no number
  };
  struct Curve {
    std::map<long, Point> points;  ///< by step
    bool stopped = false;
    bool complete = false;
  };
  PercentileStopping options_;
  Goal goal_;
  std::map<int, Curve> curves_;
  int complete_ = 0;
};

class PatienceScheduler final : public Scheduler {
 public:
  PatienceScheduler(const Patience& options, const SchedulerSetup& setup);
  void reported(const Report& report, std::vector<Decision>& out) override;

 private:
  struct Point {
    double gain = 0;
    double best = 0;  ///< up to here
  };
  Patience options_;
  Goal goal_;
  std::map<int, std::map<long, Point>> points_;  ///< by trial and step
};

/// The linear-interpolation percentile (numpy's default) of values that are not NaN; nothing
/// without any.
std::optional<double> percentile(std::vector<double> values, double percent);

}  // namespace troupe::tune
