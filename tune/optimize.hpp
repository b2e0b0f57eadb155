/// optimize: runs an experiment on a cluster; every trial is an actor.
///
///     auto best = tune::optimize<trial, Hp, tune::Pbt>(
///         ctx, space, {.goal = tune::maximize, .trials = 8, .scheduler = {.perturb_every = 5}});
///     std::cout << best.score << " lr=" << best.params.lr << '\n';
///     best.restore(ctx, net);
///
/// Shows a live table on a terminal, one line every few seconds elsewhere, and writes the
/// experiment's log, pictures and page into options.results when that is set. Weights that one
/// trial takes over from another go through the object store as a Ref; equal hashes of what was
/// saved and of what the copy holds prove it.
#pragma once

#include "troupe/tune/board.hpp"
#include "troupe/tune/detail/trial_loop.hpp"
#include "troupe/tune/experiment.hpp"
#include "troupe/tune/space.hpp"

#include <functional>
#include <limits>
#include <map>

namespace troupe::tune {

/// Where trials end when the options have no max_steps, target or time_limit.
inline constexpr long kDefaultSteps = 100;

/// What an experiment found.
template <class Hp>
struct Best {
  double score = 0;  ///< of the best report; NaN when no trial reported
  Hp params{};       ///< with which the trial came there
  int trial = -1;
  Board board;              ///< everything else
  train::SavedModel model;  ///< the very state that has this score; empty: see no_model
  std::string no_model;     ///< why there is none, in words; empty when there is one
  /// With Options::save_at_end the last model of every trial that completed with one.
  std::map<int, train::SavedModel> models;
  /// What trials said by Trial::note(), gangs' restarts among it, and what the end of the run says
  /// of itself; the latest 10,000.
  std::vector<std::string> notes;

  /// Loads the model that has this score. Throws InvalidArgument with no_model when there is none.
  template <class... M>
  void restore(const Context& ctx, M&... parts) const {
    if (!model) throw InvalidArgument(Code::invalid_argument, "tune: " + no_model);
    static_cast<void>(train::load_model(ctx, model, std::chrono::seconds(30), parts...));
  }
};

namespace internal {
struct TrialHandle {
  std::function<Ref<std::vector<TrialMessage>>()> take;
  std::function<void(Verdict)> reply;
  std::function<void()> kill;
};
using SpawnTrial = std::function<TrialHandle(const TrialSetup&, const Point&)>;

struct Outcome {
  Board board;
  train::SavedModel model;
  std::string no_model;
  std::map<int, train::SavedModel> models;
  std::vector<std::string> notes;
};
/// Sets max_steps to kDefaultSteps, with a notice, when nothing else would end the trials.
TROUPE_API void limit(ExperimentOptions& options);
TROUPE_API Outcome run_experiment(Context ctx, const SearchSpace& space,
                                  const ExperimentOptions& options, const SpawnTrial& spawn);
}  // namespace internal

/// Runs `trial(Trial&, Hp, passed…)` for every trial and blocks until all are over. `passed` is
/// copied to every attempt; give large data as a Ref. Throws InvalidArgument for bad options, for a
/// results folder that holds another experiment or is in use, and when Pbt has to copy a trial that
/// reports without a model; OutOfDisk when the log cannot be written. Failed trials do not throw,
/// see board, and pictures and tables that cannot be written are a note. Without `concurrent` as
/// many trials run at a time as the cluster has CPUs. Options without max_steps, target and
/// time_limit end every trial at step 100 and say so on stderr.
template <auto trial, class Hp = typename internal::TrialActor<trial>::Params,
          class S = AnyScheduler, class... X>
Best<Hp> optimize(Context& ctx, const Space<Hp>& space, const Options<S>& options, X&&... passed) {
  using A = internal::TrialActor<trial>;
  const internal::SpawnTrial spawn = [&](const internal::TrialSetup& setup, const Point& point) {
    Actor<A> actor = ctx.template spawn<A>(setup, space.from_point(point), passed...);
    internal::TrialHandle handle;
    handle.take = [actor] { return actor.template call<&A::take>(); };
    // A call whose result is dropped, since a tell to a trial that dies is told on stderr.
    handle.reply = [actor](internal::Verdict v) {
      static_cast<void>(actor.template call<&A::tell>(v));
    };
    handle.kill = [actor, ctx] { ctx.kill(actor); };
    return handle;
  };
  ExperimentOptions all = options.any();
  if (all.starts.empty()) all.starts = space.starts();
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
