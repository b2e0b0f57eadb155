/// optimize(): runs an experiment on a cluster, with one process for each running trial.
///
///     auto best = tune::optimize<trial, Hp, tune::Pbt>(
///         ctx, space, {.goal = tune::maximize, .trials = 8, .scheduler = {.perturb_every = 5}});
///     std::cout << best.score << " lr=" << best.params.lr << '\n';
///     best.restore(ctx, net);
///
/// It shows a live table on a terminal, or one line every few seconds elsewhere. If options.results
/// is set, that folder is a study: the same call continues it after the driver has died, and
/// returns its result once it is complete. Pictures and a page are written there. In an exploit the donor's
/// weights go through the object store as a Ref, and equal hashes of the saved and the loaded
/// weights prove the copy.
#pragma once

#include "troupe/tune/board.hpp"
#include "troupe/tune/detail/trial_loop.hpp"
#include "troupe/tune/experiment.hpp"
#include "troupe/tune/space.hpp"

#include <functional>
#include <limits>
#include <map>

namespace troupe::tune {

/// The max_steps of options that have no max_steps, target or time_limit.
inline constexpr long kDefaultSteps = 100;

/// The last models of trials, by the trial's number. A model whose trial ended in an earlier run of
/// the study lies in a file until it is asked for.
class BestModels {
 public:
  std::size_t size() const noexcept { return models_.size(); }
  bool empty() const noexcept { return models_.empty(); }
  bool contains(int trial) const { return models_.count(trial) > 0; }
  /// Returns the trials that have a model, in rising order.
  std::vector<int> trials() const {
    std::vector<int> numbers;
    for (const auto& [trial, load] : models_) numbers.push_back(trial);
    return numbers;
  }
  /// Returns the trial's model, for train::load_model(). Blocks while it reads a file. Throws
  /// InvalidArgument when the trial has none, or its file is missing or altered.
  train::SavedModel at(int trial) const {
    const auto found = models_.find(trial);
    if (found == models_.end())
      throw InvalidArgument(Code::invalid_argument,
                            "tune: trial " + std::to_string(trial) + " has no model at its end");
    return found->second();
  }
  void add(int trial, std::function<train::SavedModel()> load) { models_[trial] = std::move(load); }

 private:
  std::map<int, std::function<train::SavedModel()>> models_;
};

/// The result of an experiment.
template <class Hp>
struct Best {
  double score = 0;         ///< of the best report; NaN when no trial reported
  Hp params{};              ///< the trial's parameters at the best report
  int trial = -1;           ///< the trial of the best report; -1 without one
  Board board;              ///< everything else that is known about the experiment
  train::SavedModel model;  ///< the model as it was at the best report; empty: see no_model
  std::string no_model;     ///< why `model` is empty, in words; empty when there is a model
  /// With Options::save_at_end, the last models of all trials that completed with one.
  BestModels models;
  /// Lines of Trial::note(), restarts of gangs, repeated failures, and what went wrong with the
  /// results at the end of the run; the latest 10,000.
  std::vector<std::string> notes;

  /// Loads `model` into the parts and blocks until it is loaded. Throws InvalidArgument with the
  /// text of no_model when there is none.
  template <class... M>
  void restore(const Context& ctx, M&... parts) const {
    if (!model) throw InvalidArgument(Code::invalid_argument, "tune: " + no_model);
    static_cast<void>(train::load_model(ctx, model, std::chrono::seconds(30), parts...));
  }
};

namespace internal {
/// How the runner speaks to a host of attempts: `take` asks for its next messages.
struct TrialHandle {
  std::function<Ref<std::vector<TrialMessage>>()> take;
  std::function<void(const TrialSetup&, const Point&)> start;
  std::function<void(Verdict)> reply;
  std::function<void()> kill;
};
using SpawnTrial = std::function<TrialHandle(const ActorOptions&)>;

struct Outcome {
  Board board;
  train::SavedModel model;
  std::string no_model;
  BestModels models;
  std::vector<std::string> notes;
};
/// Sets max_steps to kDefaultSteps, with a notice, when nothing else would end the trials.
TROUPE_API void limit(ExperimentOptions& options);
TROUPE_API Outcome run_experiment(Context ctx, const SearchSpace& space,
                                  const ExperimentOptions& options, const SpawnTrial& spawn);
}  // namespace internal

/// Runs `trial(Trial&, Hp, passed…)` for every trial and blocks until all are over. `passed` is
/// copied to every attempt; pass large data as a Ref.
///
/// Throws InvalidArgument for bad options, for a results folder that holds another experiment or a
/// damaged one, and when Pbt would have to copy a trial that reports without a model. Throws
/// Unavailable for a folder that another process owns. Throws Infeasible when no node can hold what
/// options.per_trial reserves, nor the cluster a trial's gang. Throws OutOfDisk when the study has
/// waited for room for a minute. Throws Cancelled within 2 s of Ctrl-C: trials of an experiment
/// without a folder have a second to return. A study's checkpoint files have half a second; longer
/// writes, and what finds no room on a full disk, are given up. In the last two cases the same call
/// continues the study. Failed trials do not throw: see Best::board. Pictures and tables that cannot
/// be written become a note.
///
/// If options.concurrent is 0, as many trials run at a time as the cluster has room for. Trials of
/// a lost node go on elsewhere, from a copy of their last checkpoint; that is no failure. If the
/// options have no max_steps, target or time_limit, every trial ends at kDefaultSteps and a line on
/// stderr says so.
template <auto trial, class Hp = typename internal::TrialActor<trial>::Params,
          class S = AnyScheduler, class... X>
Best<Hp> optimize(Context& ctx, const Space<Hp>& space, const Options<S>& options, X&&... passed) {
  using A = internal::TrialActor<trial>;
  const internal::SpawnTrial spawn = [&](const ActorOptions& with) {
    Actor<A> actor = ctx.with(with).template spawn<A>(passed...);
    internal::TrialHandle handle;
    handle.take = [actor] { return actor.template call<&A::take>(); };
    handle.start = [actor, &space](const internal::TrialSetup& setup, const Point& point) {
      static_cast<void>(actor.template call<&A::start>(setup, space.from_point(point)));
    };
    // A call whose result is dropped, not a tell: a tell to a trial that died prints to stderr.
    handle.reply = [actor](internal::Verdict v) {
      static_cast<void>(actor.template call<&A::answer>(v));
    };
    handle.kill = [actor, ctx] { ctx.kill(actor); };
    return handle;
  };
  ExperimentOptions all = options.any();
  if (all.starts.empty()) all.starts = space.starts();
  if constexpr (!A::reusable) all.fresh_process = true;
  internal::limit(all);
  internal::Outcome outcome = internal::run_experiment(ctx, space.search(), all, spawn);
  Best<Hp> best;
  best.board = std::move(outcome.board);
  best.model = std::move(outcome.model);
  best.no_model = std::move(outcome.no_model);
  best.models = std::move(outcome.models);
  best.notes = std::move(outcome.notes);
  best.trial = best.board.best;
  best.score = std::numeric_limits<double>::quiet_NaN();
  if (best.trial < 0) return best;
  best.score = best.board.best_score();
  best.params = space.from_point(best.board.best_params());
  return best;
}

}  // namespace troupe::tune
