/// Which trials go on: schedulers as plain state machines, usable and testable without a runtime.
///
///     auto scheduler = make_scheduler(Pbt{.perturb_every = 5}, {space.search(), maximize, 8,
///     seed}); std::vector<Decision> decisions; scheduler->reported({.trial = 3, .step = 5, .score
///     = 0.7, .can_save = true}, decisions);
///
/// Each scheduler follows one published description, which its options name. Time is the step that
/// trials report. The experiment core (experiment.hpp) carries the decisions out.
#pragma once

#include "troupe/tune/domain.hpp"
#include "troupe/tune/goal.hpp"

#include <memory>
#include <optional>
#include <variant>
#include <vector>

namespace troupe::tune {

/// Every trial runs to its end.
struct Fifo {};

/// Population-based training (Jaderberg et al. 2017) as Ray Tune does it: at every interval a trial
/// of the bottom quantile copies weights and parameters of a random one of the top quantile, then
/// changes the parameters. Two departures, both options: values stay inside their domain, and every
/// trial saves at its interval, so that a donor always has a checkpoint.
struct Pbt {
  long perturb_every = 10;   ///< steps between decisions about one trial
  long burn_in = 0;          ///< no decision before this step
  double quantile = 0.25;    ///< of the population, at top and at bottom; at most 0.5
  double resample = 0.25;    ///< probability that a parameter is drawn anew
  double grow = 1.2;         ///< otherwise a number is multiplied by one of these two,
  double shrink = 0.8;       ///< and an option moves to a neighbour
  bool clamp = true;         ///< false: values may leave their domain, as in Ray
  bool save_all = true;      ///< false: only the top quantile saves, as in Ray
  bool synchronous = false;  ///< trials wait for each other at every interval
};

/// Asynchronous successive halving by percentile, as Ray Tune's ASHAScheduler stops trials: at rung
/// grace * eta^k a trial stops when its score is strictly worse than the 1 - 1/eta percentile of
/// those that came before. One fix: a rung that a trial skipped does not judge it later.
struct AsyncHyperBand {
  /// Absent: Options::max_steps, or 100 without. Another one than that is refused.
  std::optional<long> max_steps = {};
  long grace = 1;
  double eta = 4;
  int brackets = 1;         ///< more: later first rungs, drawn with softmax over rung counts
  bool stop_at_max = true;  ///< trials end at max_steps
};

/// Successive halving as Optuna's SuccessiveHalvingPruner and Determined's asha_stopping do it: a
/// trial records itself at rung min_steps * eta^(rate + k) first and goes on when it is among the
/// best floor(n / eta), at least one; ties go on.
struct SuccessiveHalving {
  long min_steps = 1;
  int eta = 4;
  int rate = 0;       ///< min_early_stopping_rate
  int bootstrap = 0;  ///< stop everything at a rung until that many came before
};

/// The median rule of Vizier (Golovin et al. 2017) as Ray Tune does it: stop when the best score so
/// far is strictly worse than the median of the others' running means up to this step.
struct MedianStopping {
  long grace = 10;      ///< earlier steps neither count nor stop (Ray's own default is 60 seconds)
  int min_samples = 3;  ///< other trials that came as far
};

/// Optuna's PercentilePruner (50: its MedianPruner): stop when the best score so far is worse than
/// the percentile of completed trials' scores at exactly this step.
struct PercentileStopping {
  double percentile = 50;  ///< of trials that may go on, by the others' scores
  int startup_trials = 5;  ///< completed trials before anything stops
  long warmup = 0;         ///< no stop at earlier steps
};

/// Optuna's PatientPruner without an inner pruner: stop when the best of the last patience + 1
/// reports is worse than the best before them by more than min_delta.
struct Patience {
  int patience = 10;
  double min_delta = 0;
};

using AnyScheduler = std::variant<Fifo, Pbt, AsyncHyperBand, SuccessiveHalving, MedianStopping,
                                  PercentileStopping, Patience>;

/// One report of a running trial.
struct Report {
  int trial = 0;
  long step = 0;
  double score = 0;
  bool can_save = false;     ///< the trial offered a model, so a checkpoint can be had
  bool others_wait = false;  ///< some trial is ready to run and has no slot
};

struct Decision {
  enum class Action {
    go_on,
    stop,
    complete,  ///< the trial has reached the end that the scheduler sets
    yield,     ///< save, give the slot to somebody who waits, come back later
    hold,      ///< save and wait inside the report until resume, exploit or stop
    resume,    ///< ends a hold
    exploit,   ///< restart from the donor's latest checkpoint with `params`
    refuse,  ///< the program cannot be run by this scheduler: the experiment ends, `why` says more
  };
  int trial = 0;
  Action action = Action::go_on;
  bool save = false;   ///< go_on and resume: take a checkpoint at this report
  int donor = -1;      ///< exploit only
  Point donor_params;  ///< exploit only: before they were changed
  Point params;        ///< exploit only
  std::string why;     ///< stop, exploit, refuse: in plain words
};

class TROUPE_API Scheduler {
 public:
  Scheduler() = default;
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  virtual ~Scheduler();
  /// A trial exists and has these parameters. Called once a trial, before its first report.
  virtual void created(int trial, const Point& params);
  /// Appends exactly one decision for the reporter, then perhaps some for trials on hold.
  virtual void reported(const Report& report, std::vector<Decision>& out) = 0;
  /// The trial reached its end (or was stopped); it takes no further part. Appends decisions for
  /// trials on hold.
  virtual void finished(int trial, std::vector<Decision>& out);
  /// As finished, for a trial that failed for good.
  virtual void failed(int trial, std::vector<Decision>& out);
  /// There will be no more trials than these many that were created.
  virtual void population(int trials, std::vector<Decision>& out);
  /// An exploit did not happen: the trial goes on with these parameters and its own weights.
  virtual void kept(int trial, const Point& params);
  /// Which of the waiting trials runs next; not empty, in the order of their waiting.
  virtual int pick(const std::vector<int>& waiting);
};

struct SchedulerSetup {
  SearchSpace space;
  Goal goal;
  int trials = 0;
  std::uint64_t seed = 0;
  long max_steps = 0;  ///< at which trials end anyway; 0: none
};

/// Throws InvalidArgument when an option is out of its range; the message names it.
TROUPE_API std::unique_ptr<Scheduler> make_scheduler(const AnyScheduler& settings,
                                                     const SchedulerSetup& setup);
/// Name and options in one line, for logs: `pbt(perturb_every 5, quantile 0.25, …)`.
TROUPE_API std::string show(const AnyScheduler& settings);

/// One bracket of Hyperband: how many trials at which resource.
struct Rung {
  int trials;
  long steps;
  friend bool operator==(Rung, Rung) = default;
};
/// The brackets of Hyperband (Li et al. 2018), most aggressive first. `formula`: n = ceil((smax +
/// 1) eta^s / (s + 1)) of Algorithm 1; `printed`: the floor((smax + 1) / (s + 1)) eta^s of the
/// paper's own table and of HpBandSter. Throws InvalidArgument unless max_steps >= 1 and eta >= 2.
enum class HyperbandTable { formula, printed };
TROUPE_API std::vector<std::vector<Rung>> hyperband_brackets(long max_steps, int eta,
                                                             HyperbandTable table);

}  // namespace troupe::tune
