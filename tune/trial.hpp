/// Trial: what the user's function of an experiment restores from, reports to and saves through.
///
///     void trial(tune::Trial& t, Hp hp) {
///       Net net;
///       t.restore(net);                           // its own checkpoint, or a better trial's
///       while (t.report(net.train_epoch(hp.lr), net)) {          // false: stop here
///       }
///     }
///     void gang(tune::Trial& t, Hp hp, Ref<Data> data) {  // the same with worker processes
///       train::fit<train_loop>(t, {.workers = 2}, hp, data);
///     }
///
/// The function runs on a thread of its own in an actor and may block. It is called once for each
/// attempt: at first, after a failure, after an exploit (with the donor's weights) and after a
/// pause. One process runs many attempts, one after the other (Options::fresh_process).
#pragma once

#include "troupe/runtime/callable.hpp"
#include "troupe/train/checkpoint.hpp"
#include "troupe/train/fit.hpp"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace troupe::tune {

namespace internal {
class TrialLoop;
class TrialObserver;
}  // namespace internal

/// The handle that the trial's function receives. Use it on the function's own thread only.
class TROUPE_API Trial {
 public:
  int number() const noexcept;
  /// The number of this attempt; the first one is 1.
  int attempt() const noexcept;
  /// The step of the last report; before the first one, the step of the checkpoint to start from.
  long step() const noexcept;
  Context context() const;

  /// Loads the weights that this attempt starts from, and blocks until they are loaded. Returns
  /// false when the attempt starts without weights.
  template <class... M>
  bool restore(M&... parts) {
    if (!start()) return false;
    restored(train::load_model(context(), start(), std::chrono::seconds(30), parts...));
    return true;
  }
  /// Reports the score of the next step. Blocks until the scheduler has decided, and saves `parts`
  /// first when it asks for a checkpoint. Returns false when the function must return: its later
  /// reports change nothing, and its process is killed after Options::stop_grace.
  template <class... M>
  bool report(double score, M&&... parts) {
    if constexpr (sizeof...(M) == 0)
      return report({.step = step() + 1, .loss = score}, score, {});
    else
      return report({.step = step() + 1, .loss = score}, score,
                    [&] { return train::save_model(context(), step(), parts...); });
  }
  /// The general form: Options::metric names the metric that is the score, and `save` saves the
  /// model (empty: there is no model). Throws InvalidArgument when the report lacks that metric,
  /// unless steps start at 1 or more and rise within an attempt, and when the saved model is of
  /// another step.
  bool report(const train::Metrics& metrics, const std::function<train::SavedModel()>& save);

  /// The model that this attempt starts from; empty when there is none. restore() loads it.
  const train::SavedModel& start() const noexcept;
  /// Reports the hash of the weights that were loaded, to prove the copy. restore() calls it.
  void restored(std::uint64_t hash);
  /// Adds a line to Best::notes and to the live view.
  void note(const std::string& what);

 private:
  friend class internal::TrialLoop;
  friend class internal::TrialObserver;
  explicit Trial(internal::TrialLoop& loop) noexcept : loop_(&loop) {}
  bool report(const train::Metrics& metrics, double score,
              const std::function<train::SavedModel()>& save);
  void replicate(train::SavedModel& saved);
  internal::TrialLoop* loop_;
};

namespace internal {
/// Forwards the reports and restarts of a gang to the trial that runs it.
class TROUPE_API TrialObserver final : public train::GangObserver {
 public:
  explicit TrialObserver(Trial& trial) noexcept : trial_(trial) {}
  train::SavedModel start() override { return trial_.start(); }
  void restored(std::uint64_t hash) override { trial_.restored(hash); }
  bool reported(const train::Metrics& metrics, const train::SavedModel& saved) override;
  void restarted(const std::string& why, long step) override;
  void began() override;
  std::optional<train::GangReservation> reserved() const override;
  loops::OutputPlace output() const override;

 private:
  Trial& trial_;
};
}  // namespace internal
}  // namespace troupe::tune

namespace troupe::train {
/// Runs a gang inside a trial and blocks until it ends. The gang starts from the trial's weights,
/// its reports are the trial's (the mean loss is the score, or the metric of Options::metric), and
/// it ends when the scheduler stops the trial. Its ranks use what tune::Options::per_trial reserves
/// for them; throws InvalidArgument when FitOptions asks for more. Other trials can copy a step only if the loop calls w.checkpoint() before w.report() in
/// that step.
template <auto loop, class... X>
Fit fit(tune::Trial& trial, const FitOptions& options, X&&... arguments) {
  tune::internal::TrialObserver observer(trial);
  return fit_observed<loop>(trial.context(), options, observer, std::forward<X>(arguments)...);
}
/// The same for a loop that is a lambda without captures.
template <class L, class... X>
  requires CodeOnly<L>
Fit fit(tune::Trial& trial, const FitOptions& options, L, X&&... arguments) {
  return fit<L{}>(trial, options, std::forward<X>(arguments)...);
}
}  // namespace troupe::train
