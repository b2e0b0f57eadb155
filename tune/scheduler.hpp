/// Schedulers: they decide after each report whether a trial goes on, stops, waits or copies
/// another one. A scheduler is a plain state machine and needs no runtime.
///
///     auto scheduler = make_scheduler(Pbt{.perturb_every = 5},
///                                     {space.search(), maximize, 8, seed});
///     std::vector<Decision> decisions;
///     scheduler->reported({.trial = 3, .step = 5, .score = 0.7, .can_save = true}, decisions);
///
/// Each scheduler follows one published description, named at its options. Time is the step that
/// trials report. The experiment core (experiment.hpp) carries out the decisions.
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

/// Population-based training (Jaderberg et al. 2017) as in Ray Tune. At every interval a trial of
/// the bottom quantile exploits a random member of the top quantile, its donor: it copies the
/// donor's weights and parameters. It then explores, which changes the parameters. Two departures
/// from Ray, both options: values stay inside their domain, and every trial saves at its interval,
/// so that a donor always has a checkpoint.
struct Pbt {
  long perturb_every = 10;   ///< steps between decisions about one trial
  long burn_in = 0;          ///< no decision before this step
  double quantile = 0.25;    ///< share of the population that is top, and bottom; at most 0.5
  double resample = 0.25;    ///< explore: the probability that a parameter is drawn anew
  double grow = 1.2;         ///< explore: else a number is multiplied by `grow` or `shrink`,
  double shrink = 0.8;       ///< and a choice moves to a neighbouring option
  bool clamp = true;         ///< false: values may leave their domain, as in Ray
  bool save_all = true;      ///< false: only the top quantile saves, as in Ray
  bool synchronous = false;  ///< true: all trials wait for each other at every interval
};

/// ASHA, asynchronous successive halving, as Ray Tune's ASHAScheduler stops trials. At rung
/// grace * eta^k a trial stops when its score is strictly worse than the (1 - 1/eta) percentile of
/// the scores recorded at that rung before it. One departure from Ray: a trial that passed several
/// rungs in one report is recorded at the highest of them only, and the lower ones never judge it.
struct AsyncHyperBand {
  /// The last step of a trial. Absent: Options::max_steps, or 100 when that is 0. With stop_at_max,
  /// a value that contradicts Options::max_steps is refused.
  std::optional<long> max_steps = {};
  long grace = 1;  ///< the step of the first rung
  double eta = 4;  ///< reduction factor: about 1 of eta trials is promoted past a rung
  /// Bracket s begins at rung s. A trial draws its bracket with softmax weights of rung counts.
  int brackets = 1;
  bool stop_at_max = true;  ///< trials complete at max_steps
};

/// Successive halving as in Optuna's SuccessiveHalvingPruner and Determined's asha_stopping. At
/// rung min_steps * eta^(rate + k) a trial first records its score. It is promoted when its score
/// is among the best max(floor(n / eta), 1) of the n recorded there; ties are promoted.
struct SuccessiveHalving {
  long min_steps = 1;
  int eta = 4;
  int rate = 0;       ///< Optuna's min_early_stopping_rate
  int bootstrap = 0;  ///< the first so many trials at a rung stop there
};

/// The median stopping rule of Vizier (Golovin et al. 2017) as in Ray Tune. A trial stops when its
/// best score is strictly worse than the median of the others' running means up to this step.
struct MedianStopping {
  long grace = 10;      ///< earlier steps neither count nor stop (Ray's own default is 60 seconds)
  int min_samples = 3;  ///< other trials that must have come as far before this one may stop
};

/// Optuna's PercentilePruner; percentile = 50 is its MedianPruner. A trial stops when its best
/// score is worse than the percentile of the scores that completed trials had at exactly this step.
struct PercentileStopping {
  double percentile = 50;  ///< a trial goes on while it is among the best so many percent
  int startup_trials = 5;  ///< completed trials before any trial is stopped
  long warmup = 0;         ///< no trial is stopped at earlier steps
};

/// Optuna's PatientPruner without an inner pruner. A trial stops when the best of its last
/// patience + 1 reports is worse than its best before them by more than min_delta.
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
  bool can_save = false;     ///< the report offered a model, so a checkpoint can be taken
  bool others_wait = false;  ///< some other trial is ready to run and has no slot
};

/// A scheduler's decision about one trial.
struct Decision {
  enum class Action {
    go_on,
    stop,
    complete,  ///< the trial has reached the last step that the scheduler sets
    yield,     ///< save, give the slot to a waiting trial, and queue for a slot again
    hold,      ///< wait inside report() until resume, exploit or stop
    resume,    ///< ends a hold
    exploit,   ///< restart from the donor's latest checkpoint with `params`
    refuse,    ///< this scheduler cannot run the program: the experiment ends with `why`
  };
  int trial = 0;
  Action action = Action::go_on;
  bool save = false;   ///< go_on and hold: take a checkpoint at this report
  int donor = -1;      ///< exploit only: the member whose weights are copied
  Point donor_params;  ///< exploit only: the donor's parameters, before explore changed them
  Point params;        ///< exploit only: the parameters to go on with
  std::string why;     ///< the reason, in plain words
};

/// The end of a trial, for Scheduler::observe(): it completed or was stopped, or it failed and has
/// no retry left.
struct TrialOver {
  int trial = 0;
  bool failed = false;
};

/// Base of all schedulers. Calls may not overlap. The functions observe…(), created(), kept() and
/// decided() alone change the state of a scheduler, so that recorded decisions rebuild it.
class TROUPE_API Scheduler {
 public:
  Scheduler() = default;
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  virtual ~Scheduler();
  /// Registers a new trial. Called once for each trial, before its first report.
  virtual void created(int trial, const Point& params);
  /// Takes a report. A repeated step replaces the earlier one, and counts once at a rung.
  virtual void observe(const Report& report) = 0;
  /// Removes a trial.
  virtual void observe(const TrialOver& end);
  /// Sets the final number of trials: the searcher has no further point, or the user changed it.
  virtual void observe_population(int trials);
  /// Appends exactly one decision for the trial whose report was observed last, then any number for
  /// trials on hold.
  virtual void decide(const Report& report, std::vector<Decision>& out) const = 0;
  /// Appends decisions for trials on hold, after the end of a trial or a new population.
  virtual void decide_holds(std::vector<Decision>& out) const;
  /// Takes the decisions that follow the last observation.
  virtual void decided(const std::vector<Decision>& decisions);
  /// Revokes an exploit: the trial goes on from its own weights of this step with these parameters.
  virtual void kept(int trial, const Point& params, long step);
  /// Returns which of the waiting trials runs next. `waiting` is not empty and in queue order.
  virtual int pick(const std::vector<int>& waiting) const;

  // The same in one call: observes, decides and takes the decisions, which are appended to `out`.
  void reported(const Report& report, std::vector<Decision>& out);
  void finished(int trial, std::vector<Decision>& out);
  void failed(int trial, std::vector<Decision>& out);
  void population(int trials, std::vector<Decision>& out);
};

/// The properties of the experiment that a scheduler needs besides its own options.
struct SchedulerSetup {
  SearchSpace space;
  Goal goal;
  int trials = 0;
  std::uint64_t seed = 0;
  long max_steps = 0;  ///< the experiment completes trials at this step; 0: no limit
};

/// Makes the scheduler of these settings. Throws InvalidArgument when an option is out of its
/// range; the message names the option.
TROUPE_API std::unique_ptr<Scheduler> make_scheduler(const AnyScheduler& settings,
                                                     const SchedulerSetup& setup);
/// Formats name and options in one line, for logs: `pbt(perturb_every 5, quantile 0.25, …)`.
TROUPE_API std::string show(const AnyScheduler& settings);

/// One rung of a Hyperband bracket: so many trials train up to so many steps.
struct Rung {
  int trials;
  long steps;
  friend bool operator==(Rung, Rung) = default;
};
/// How many trials begin in bracket s of Hyperband (Li et al. 2018), of smax + 1 brackets.
/// `formula`: ceil((smax + 1) eta^s / (s + 1)), as in Algorithm 1 of the paper. `printed`:
/// floor((smax + 1) / (s + 1)) eta^s, as in the paper's own table and in HpBandSter.
enum class HyperbandTable { formula, printed };
/// Returns the rungs of every Hyperband bracket, the bracket that stops most trials first. Throws
/// InvalidArgument unless max_steps >= 1 and eta >= 2.
TROUPE_API std::vector<std::vector<Rung>> hyperband_brackets(long max_steps, int eta,
                                                             HyperbandTable table);

}  // namespace troupe::tune
