/// The schedulers behind make_scheduler(), one class each. scheduler.hpp says what they do.
#pragma once

#include "troupe/tune/scheduler.hpp"

#include <map>

namespace troupe::tune {

/// Throws InvalidArgument for options that a scheduler cannot work with.
[[noreturn]] inline void refuse(const std::string& who, const std::string& why) {
  throw InvalidArgument(Code::invalid_argument, "tune::" + who + ": " + why);
}

class PbtScheduler final : public Scheduler {
 public:
  PbtScheduler(const Pbt& options, const SchedulerSetup& setup);
  void created(int trial, const Point& params) override;
  void observe(const Report& report) override;
  void observe(const TrialOver& end) override;
  void observe_population(int trials) override;
  void decide(const Report& report, std::vector<Decision>& out) const override;
  void decide_holds(std::vector<Decision>& out) const override;
  void decided(const std::vector<Decision>& decisions) override;
  void kept(int trial, const Point& params, long step) override;
  int pick(const std::vector<int>& waiting) const override;

  /// Returns the parameters of a copy: each of the donor's is drawn anew or perturbed.
  Point explore(const Point& donor, Random& random) const;

 private:
  struct Member {
    Point params;
    bool done = false;
    bool has_score = false;
    double gain = 0;  ///< larger is better
    long last_step = 0;
    long last_perturb = 0;
    bool can_save = false;
    bool offered = false;  ///< at least one of its reports offered a model
    bool saved = false;    ///< has, or was told to make, a checkpoint at its last interval
    bool held = false;     ///< synchronous: waits at the barrier
    bool due = false;      ///< its last report is at an interval and awaits its decision
    bool sick = false;     ///< its last score was NaN: it ranks last and is no donor
  };
  struct Quantiles {
    std::vector<int> top;
    std::vector<int> bottom;
  };
  Quantiles quantiles() const;
  void decide_alone(const Report& report, std::vector<Decision>& out) const;
  std::vector<int> donors(const std::vector<int>& top) const;
  bool exploit(int trial, const std::vector<int>& top, Decision& decision) const;
  double moved(const Domain& domain, double value, Random& random) const;
  void pass_barrier(std::vector<Decision>& out) const;
  void barrier_passed();

  Pbt options_;
  SearchSpace space_;
  Goal goal_;
  int population_;
  std::uint64_t seed_;
  std::map<int, Member> members_;
  long next_sync_ = 0;
};

class AsyncHyperBandScheduler final : public Scheduler {
 public:
  AsyncHyperBandScheduler(const AsyncHyperBand& options, const SchedulerSetup& setup);
  void created(int trial, const Point& params) override;
  void observe(const Report& report) override;
  void observe(const TrialOver& end) override;
  void decide(const Report& report, std::vector<Decision>& out) const override;
  /// Steps of the rungs of a bracket, lowest first.
  static std::vector<double> rung_steps(const AsyncHyperBand& options, int bracket);

 private:
  struct RungState {
    double steps = 0;
    std::vector<double> gains;
  };
  struct Place {
    std::size_t bracket = 0;
    std::size_t next_rung = 0;  ///< the lowest rung that was neither recorded nor skipped
    long step = 0;
    double gain = 0;
    bool reported = false;
    std::optional<double> cutoff;  ///< that judges the last report
  };
  /// Records the trial at the highest rung that it has reached, and returns the cutoff of the
  /// scores that were recorded there before it. Returns nothing without a new rung or such scores.
  std::optional<double> record(Place& place);

  AsyncHyperBand options_;
  Goal goal_;
  std::uint64_t seed_;
  std::vector<std::vector<RungState>> brackets_;
  std::map<int, Place> places_;
};

class SuccessiveHalvingScheduler final : public Scheduler {
 public:
  SuccessiveHalvingScheduler(const SuccessiveHalving& options, const SchedulerSetup& setup);
  void observe(const Report& report) override;
  void observe(const TrialOver& end) override;
  void decide(const Report& report, std::vector<Decision>& out) const override;

 private:
  struct Place {
    std::size_t next_rung = 0;
    std::string why;  ///< why the last report stops the trial; empty: it does not
  };
  double rung_step(std::size_t rung) const;
  /// Records the report at all rungs that it passes. Returns why it passes one no more, if so.
  std::string record(Place& place, const Report& report);
  SuccessiveHalving options_;
  Goal goal_;
  std::vector<std::vector<double>> rungs_;  ///< gains recorded at each rung
  std::map<int, Place> places_;
};

class MedianScheduler final : public Scheduler {
 public:
  MedianScheduler(const MedianStopping& options, const SchedulerSetup& setup);
  void observe(const Report& report) override;
  void decide(const Report& report, std::vector<Decision>& out) const override;

 private:
  /// Running totals of a trial up to a step, so that a report needs one sample of each other trial
  /// and not its whole history.
  struct Sample {
    long step = 0;
    double best = 0;   ///< best gain so far
    long count = 0;    ///< reports from step `grace` on whose gain is not NaN
    double first = 0;  ///< gain of the first of these
    /// Sum of (gain - first) over the finite ones. The mean of equal gains is then exactly that
    /// gain.
    long double above = 0;
    double infinite = 0;  ///< sum of the infinite gains; if not 0, it is the mean
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
  void observe(const Report& report) override;
  void observe(const TrialOver& end) override;
  void decide(const Report& report, std::vector<Decision>& out) const override;
  void decided(const std::vector<Decision>& decisions) override;

 private:
  struct Point {
    double gain = 0;
    double best = 0;  ///< best gain up to this step; NaN if all were NaN
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
  void observe(const Report& report) override;
  void observe(const TrialOver& end) override;
  void decide(const Report& report, std::vector<Decision>& out) const override;

 private:
  struct Point {
    double gain = 0;
    double best = 0;  ///< best gain up to this step
  };
  Patience options_;
  Goal goal_;
  std::map<int, std::map<long, Point>> points_;  ///< by trial and step
};

/// Returns the percentile with linear interpolation (numpy's default) of the values that are not
/// NaN, or nothing when there is none.
std::optional<double> percentile(std::vector<double> values, double percent);

}  // namespace troupe::tune
