/// fit: runs a training loop in a gang of worker processes and brings it through their deaths.
///
///     auto fit = train::fit<train_loop>(ctx, {.workers = 4, .max_restarts = 2}, Config{}, data);
///     std::cout << fit.last().loss << '\n';
///     fit.restore(model);
///
/// The workers are actors on one node. When one dies, the collective operation of the others ends
/// in a typed error within 0.1 s, all are taken down, and a new gang starts from the last
/// checkpoint. A loop that throws an error of its own is not started again: it would throw again.
#pragma once

#include "troupe/train/detail/gang.hpp"
#include "troupe/train/worker.hpp"

#include <string>
#include <vector>

namespace troupe::train {

struct FitOptions {
  int workers = 1;
  double gpus_per_worker = 0;  ///< in a cluster without GPUs the loop runs on CPUs, with a notice
  int max_restarts = 0;        ///< of the whole gang, after deaths
  double cpus_per_worker = 0;  ///< reserved; 0 reserves none
  /// Longest wait for a rank in a collective operation; a death is noticed at once.
  Duration timeout = std::chrono::seconds(30);
};

/// What a training run left.
class TROUPE_API Fit {
 public:
  /// Rank 0's last report; zeros when there was none.
  const Metrics& last() const noexcept { return last_; }
  /// Rank 0's reports by step; steps that a restart repeated appear once.
  const std::vector<Metrics>& history() const noexcept { return history_; }
  /// The checkpoint with the least reported loss, else the latest; false when none was made.
  const SavedModel& best_checkpoint() const noexcept { return best_ ? best_ : latest_; }
  const SavedModel& latest_checkpoint() const noexcept { return latest_; }
  /// How often the gang was started again, and what each worker's end was, in words.
  int restarts() const noexcept { return restarts_; }
  const std::vector<std::string>& failures() const noexcept { return failures_; }
  /// Loads the best checkpoint. Throws InvalidArgument when there is none, else as load_model.
  template <class... M>
  void restore(M&... parts) const {
    static_cast<void>(
        load_model(checked_context(), best_checkpoint(), std::chrono::seconds(30), parts...));
  }

 private:
  friend class internal::Supervisor;
  Context checked_context() const;
  Metrics last_;
  std::vector<Metrics> history_;
  SavedModel best_, latest_;
  double best_loss_ = 0;
  int restarts_ = 0;
  std::vector<std::string> failures_;
};

/// Who hears of a gang as it runs, and may end it: a trial of tune.
class TROUPE_API GangObserver {
 public:
  virtual ~GangObserver();
  /// What the first gang starts from.
  virtual SavedModel start() = 0;
  /// Rank 0 loaded a checkpoint; the hash of what its model holds.
  virtual void restored(std::uint64_t hash) = 0;
  /// Result: whether to go on. `saved` is empty unless it is of this very step. May block.
  virtual bool reported(const Metrics& metrics, const SavedModel& saved) = 0;
  /// The gang was started again, from this step; why, in words.
  virtual void restarted(const std::string& why, long step) = 0;
};

namespace internal {
TROUPE_API Fit supervise(Context ctx, const FitOptions& options, const SpawnWorker& spawn,
                         GangObserver* observer);

template <auto loop, class... X>
Fit fit_on(Context ctx, const FitOptions& options, GangObserver* observer, X&&... arguments) {
  using A = LoopActor<loop>;
  const SpawnWorker spawn = [&](const WorkerSetup& setup, const ActorOptions& with) {
    Actor<A> actor = ctx.with(with).template spawn<A>(setup, arguments...);
    WorkerHandle handle;
    handle.take = [actor] { return actor.template call<&A::take>(kTakeWait); };
    handle.reply = [actor](bool go_on) { actor.template tell<&A::reply>(go_on); };
    handle.kill = [actor, ctx] { ctx.kill(actor); };
    return handle;
  };
  return supervise(ctx, options, spawn, observer);
}
}  // namespace internal

/// Runs `loop(Worker&, arguments…)` on every rank and blocks until all have ended. Arguments are
/// copied to every worker; give large data as a Ref. Throws TaskFailed when a loop threw,
/// WorkerDied when workers died more often than max_restarts, InvalidArgument for bad options.
template <auto loop, class... X>
Fit fit(Context& ctx, const FitOptions& options, X&&... arguments) {
  return internal::fit_on<loop>(ctx, options, nullptr, std::forward<X>(arguments)...);
}

}  // namespace troupe::train
