/// Trial: one trial of an experiment, as the user's function sees it.
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
/// A trial is an actor; the function runs on a thread of its own in it and may block. It is called
/// once for each attempt: after a failure, and after it took over another trial's weights.
#pragma once

#include "troupe/runtime/callable.hpp"
#include "troupe/train/checkpoint.hpp"
#include "troupe/train/fit.hpp"

#include <functional>
#include <string>
#include <vector>

namespace troupe::tune {

namespace internal {
class TrialLoop;
}

/// For the thread of the trial's function only.
class TROUPE_API Trial {
 public:
  int number() const noexcept;
  /// 1 for the first.
  int attempt() const noexcept;
  /// Of the last report; a restored checkpoint's at first.
  long step() const noexcept;
  Context context() const;

  /// Loads the weights that this attempt starts from, if there are any. Result: whether there were.
  template <class... M>
  bool restore(M&... parts) {
    if (!start()) return false;
    restored(train::load_model(context(), start(), std::chrono::seconds(30), parts...));
    return true;
  }
  /// One step further, with this score. Blocks until the scheduler has decided; saves the parts
  /// when it asks. Result: false when the function should return: what it reports from then on
  /// changes nothing, and it is killed after Options::stop_grace.
  template <class... M>
  bool report(double score, M&&... parts) {
    if constexpr (sizeof...(M) == 0)
      return report({.step = step() + 1, .loss = score}, {});
    else
      return report({.step = step() + 1, .loss = score},
                    [&] { return train::save_model(context(), step(), parts...); });
  }
  /// The general form: `loss` is the score, `save` is empty without a model. Steps start at 1 and
  /// rise within an attempt; others throw InvalidArgument.
  bool report(const train::Metrics& metrics, const std::function<train::SavedModel()>& save);

  const train::SavedModel& start() const noexcept;
  void restored(std::uint64_t hash);
  /// Tells people what happened, in words.
  void note(const std::string& what);

 private:
  friend class internal::TrialLoop;
  explicit Trial(internal::TrialLoop& loop) noexcept : loop_(&loop) {}
  internal::TrialLoop* loop_;
};

namespace internal {
/// Passes what a gang says on to its trial.
class TROUPE_API TrialObserver final : public train::GangObserver {
 public:
  explicit TrialObserver(Trial& trial) noexcept : trial_(trial) {}
  train::SavedModel start() override { return trial_.start(); }
  void restored(std::uint64_t hash) override { trial_.restored(hash); }
  bool reported(const train::Metrics& metrics, const train::SavedModel& saved) override;
  void restarted(const std::string& why, long step) override;

 private:
  Trial& trial_;
};
}  // namespace internal
}  // namespace troupe::tune

namespace troupe::train {
/// A gang inside a trial: starts from the trial's weights, reports for it (the loss is the score),
/// and ends when the scheduler says so. A step can be copied by other trials when the loop calls
/// w.checkpoint() before w.report() in it.
template <auto loop, class... X>
Fit fit(tune::Trial& trial, const FitOptions& options, X&&... arguments) {
  tune::internal::TrialObserver observer(trial);
  return fit_observed<loop>(trial.context(), options, observer, std::forward<X>(arguments)...);
}
/// The same with a lambda without captures.
template <class L, class... X>
  requires CodeOnly<L>
Fit fit(tune::Trial& trial, const FitOptions& options, L, X&&... arguments) {
  return fit<L{}>(trial, options, std::forward<X>(arguments)...);
}
}  // namespace troupe::train
