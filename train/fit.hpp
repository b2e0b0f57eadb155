/// fit: runs a training loop in a gang of worker processes and brings it through their deaths.
///
///     auto fit = train::fit<train_loop>(ctx, {.workers = 4, .max_restarts = 2}, Config{}, data);
///     std::cout << fit.last().loss << '\n';
///     fit.restore(model);
///
/// The workers are actors on one node. When one dies, the collective operation of the others ends
/// in a typed error within 0.1 s, all are taken down, and a new gang starts from the last
/// checkpoint. So it does when an error that leaves a loop tells of the cluster: ObjectLost,
/// Unavailable, TimedOut, WorkerDied, ActorDied, ActorUnavailable, Overloaded, OutOfMemory,
/// OutOfDisk, NoSpace. An error of the user's own ends the run at once, since it would come again:
/// any other exception, calls that differ between ranks, a rank that returns before the others.
#pragma once

#include "troupe/runtime/callable.hpp"
#include "troupe/train/detail/training_loop.hpp"
#include "troupe/train/worker.hpp"

#include <optional>
#include <string>
#include <vector>

namespace troupe::train {

/// How the values of a metric on the ranks become one.
enum class MetricReduce : std::uint8_t { mean, sum, min, max };

struct FitOptions {
  int workers = 1;
  /// How the workers divide a model and its batch: Worker::layout(). A dp of 1 stands for the
  /// workers that tp and pp leave.
  Layout layout = {};
  /// Reserved for each worker: a whole number, or a fraction of one that workers share. Its process
  /// sees these devices and no others, Context::gpu_ids() are their numbers on the node, and
  /// Worker::device() is the first. Infeasible where no node has as many as all workers need.
  double gpus_per_worker = 0;
  /// In a cluster without a GPU the loop runs on CPUs all the same, with a notice on stderr.
  bool cpus_if_no_gpu = false;
  /// New gangs after failures of the cluster; -1: without limit. The first starts at once, and
  /// those that make no new checkpoint wait longer each time, up to 10 s.
  int max_restarts = 0;
  /// Reserved for each worker; 0 reserves none. The gang runs on a node that has as many as all
  /// workers need: this one if it can, else another, for which it waits. Infeasible if none has.
  double cpus_per_worker = 0;
  /// Longest wait for a rank in a collective operation; a death is noticed at once. `forever` sets
  /// no limit; zero and less are refused (InvalidArgument).
  Duration timeout = std::chrono::seconds(30);
  /// What the best checkpoint is judged by: "loss", or a name in Metrics::extra. Its value in a
  /// step is taken from all ranks that reported it there.
  std::string metric = "loss";
  MetricReduce reduce = MetricReduce::mean;
  bool maximize = false;  ///< the greatest value is the best
};

/// What a training run left.
class TROUPE_API Fit {
 public:
  /// The last report: rank 0's, its loss the mean over the ranks. Zeros when there was none.
  const Metrics& last() const noexcept { return last_; }
  /// The reports by step; steps that a restart repeated appear once.
  const std::vector<Metrics>& history() const noexcept { return history_; }
  /// The checkpoint of the step with the best reported metric, else the latest; false when none was
  /// made.
  const SavedModel& best_checkpoint() const noexcept { return best_ ? best_ : latest_; }
  /// The metric of the best checkpoint; nothing when no step with a checkpoint had a finite one.
  std::optional<double> best_value() const noexcept { return best_value_; }
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
  std::optional<double> best_value_;
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
  using A = TrainingActorOf<loop>;
  const SpawnWorker spawn = [&](const WorkerSetup& setup, const ActorOptions& with) {
    Actor<A> actor = ctx.with(with).template spawn<A>(setup, arguments...);
    WorkerHandle handle;
    handle.take = [actor] { return actor.template call<&A::take>(); };
    // Calls whose results are dropped, since a tell to a rank that dies is told on stderr.
    handle.tell = [actor](const WorkerOrder& order) {
      static_cast<void>(actor.template call<&A::tell>(order));
    };
    handle.watch = [actor](Position at) { static_cast<void>(actor.template call<&A::watch>(at)); };
    handle.kill = [actor, ctx] { ctx.kill(actor); };
    return handle;
  };
  return supervise(ctx, options, spawn, observer);
}
}  // namespace internal

/// Runs `loop(Worker&, arguments…)` on every rank and blocks until all have ended. Arguments are
/// copied to every worker; give large data as a Ref. Throws TaskFailed when the user's own error
/// ended the run (it names worker and step; is<E>() tells an exception of type E, and a
/// troupe::Error stands behind it as its cause), WorkerDied when the cluster failed more often than
/// max_restarts (the last failure stands behind it), Infeasible when no node has room for all
/// workers, InvalidArgument for bad options, among them a layout that does not divide the workers.
template <auto loop, class... X>
Fit fit(Context& ctx, const FitOptions& options, X&&... arguments) {
  return internal::fit_on<loop>(ctx, options, nullptr, std::forward<X>(arguments)...);
}
/// The same with a lambda without captures.
template <class L, class... X>
  requires CodeOnly<L>
Fit fit(Context& ctx, const FitOptions& options, L, X&&... arguments) {
  return internal::fit_on<L{}>(ctx, options, nullptr, std::forward<X>(arguments)...);
}
/// fit() with somebody who hears of the gang: it starts from observer.start(), and each report
/// waits for observer.reported(), which is called on this thread.
template <auto loop, class... X>
Fit fit_observed(const Context& ctx, const FitOptions& options, GangObserver& observer,
                 X&&... arguments) {
  return internal::fit_on<loop>(ctx, options, &observer, std::forward<X>(arguments)...);
}

}  // namespace troupe::train
