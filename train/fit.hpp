/// fit(): runs a training loop in a gang of worker processes and restarts the gang after
/// failures.
///
///     auto fit = train::fit<train_loop>(ctx, {.workers = 4, .max_restarts = 2}, Config{}, data);
///     std::cout << fit.last().loss << '\n';
///     fit.restore(model);
///
/// The workers are actors, on one node if one has room for all, else on several. When a worker
/// dies, the collective operations of the others throw: within 0.1 s on its node, and when its
/// links close elsewhere. fit() then kills all workers and starts a new gang from the last
/// checkpoint. It does the same when an error of the cluster leaves a loop: ObjectLost,
/// Unavailable, TimedOut, WorkerDied, ActorDied, ActorUnavailable, Overloaded, OutOfMemory,
/// OutOfDisk or NoSpace. An error of the user's program ends the run at once, because it would
/// come again. Such errors are any other exception, calls that differ between ranks, and a rank
/// that returns before the others.
#pragma once

#include "troupe/actors/loop_actor/output_place.hpp"
#include "troupe/runtime/callable.hpp"
#include "troupe/train/detail/training_loop.hpp"
#include "troupe/train/worker.hpp"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace troupe::train {

/// The number of ranks of a gang: one number, or a least and a greatest.
struct Workers {
  int least = 1, most = 1;
  constexpr Workers(int number) noexcept : least(number), most(number) {}
  constexpr Workers(int from, int to) noexcept : least(from), most(to) {}
};

/// A gang that begins, for FitOptions::on_gang.
struct Gang {
  struct Rank {
    int rank = 0;
    std::string node;  ///< its name
    int pid = 0;       ///< the rank's process on that node
  };
  std::vector<Rank> ranks;
  long step = 0;  ///< the step of the checkpoint that it starts from; 0: none
};

/// How a metric is reduced over the ranks.
enum class MetricReduce : std::uint8_t { mean, sum, min, max };

/// Where a run keeps its checkpoints and reports.
struct RunOptions {
  /// An absolute path that all nodes see; make it first. Empty: checkpoints are objects, and end
  /// with the run.
  ///
  /// The run writes checkpoints into FOLDER/step-…, and each report as a line of
  /// FOLDER/reports.jsonl. A later fit() on the folder goes on from its newest complete
  /// checkpoint; the batch, the seed of the order and the number of samples must be the same. One
  /// driver at a time may have the folder.
  std::string folder = {};
  /// Worker::wants_checkpoint() is true every so many steps. 0: only when the gang is to move.
  long every = 0;
  int keep = 2;  ///< newest checkpoints that stay beside the best one
};

struct FitOptions {
  /// The number of ranks, or {least, most}. A gang of varying size starts with as many ranks as
  /// have room, in steps of tp * pp, and each needs reserved CPUs or GPUs. The global batch stays
  /// the same. A trial takes one number.
  Workers workers = 1;
  /// How the workers divide a model and its batch; see Worker::layout(). A dp of 1 is replaced by
  /// workers / (tp * pp).
  Layout layout = {};
  /// GPUs reserved for each worker: a whole number, or a fraction of one GPU that workers share.
  /// The worker's process sees these devices and no others. Context::gpu_ids() are their numbers
  /// on the node, and Worker::device() is the first. Throws Infeasible when the nodes have too few
  /// for all workers.
  double gpus_per_worker = 0;
  /// Without a GPU in the cluster, run the loop on CPUs and print a notice on stderr.
  bool cpus_if_no_gpu = false;
  /// How many times a new gang starts after a failure of the cluster; -1: without limit. The
  /// first restart is immediate. Further restarts without a new checkpoint wait longer each time,
  /// up to 10 s.
  int max_restarts = 0;
  /// CPUs reserved for each worker; 0 reserves none. fit() waits while other work has them. Throws
  /// Infeasible when the cluster has too few: at once, on a joined cluster after 60 s.
  double cpus_per_worker = 0;
  /// Which nodes get the workers. pack: one node that has room for all, this node first, else those
  /// with the most room. spread: all nodes, evenly. Workers that divide tensors stay together.
  Placement placement = Placement::pack;
  RunOptions run = {};  ///< a trial has no folder
  /// For how long more workers must have had room until a gang of varying size grows. A failure
  /// within a minute of a growth doubles it, up to 10 minutes.
  Duration grow_after = std::chrono::seconds(30);
  /// Called on the calling thread each time when a gang begins.
  std::function<void(const Gang&)> on_gang = {};
  /// Longest wait for a rank in a collective operation; a death is noticed at once. `forever`
  /// sets no limit. Zero and negative values throw InvalidArgument.
  Duration timeout = std::chrono::seconds(30);
  /// The metric that decides which checkpoint is the best: "loss", or a name in Metrics::extra.
  /// Its value at a step is reduced over all ranks that reported the metric at that step.
  std::string metric = "loss";
  MetricReduce reduce = MetricReduce::mean;
  bool maximize = false;  ///< the greatest value is the best
};

/// The result of a training run.
class TROUPE_API Fit {
 public:
  /// Returns the last report: rank 0's metrics, with the mean loss over the ranks. Zeros when
  /// there was none.
  const Metrics& last() const noexcept { return last_; }
  /// Returns the reports by step. Steps that a restart repeated appear once.
  const std::vector<Metrics>& history() const noexcept { return history_; }
  /// Returns the checkpoint of the step with the best reported metric, else the latest one.
  /// Converts to false when the run made no checkpoint.
  const SavedModel& best_checkpoint() const noexcept { return best_ ? best_ : latest_; }
  /// Returns the metric of the best checkpoint; nothing when no step with a checkpoint reported a
  /// finite value.
  std::optional<double> best_value() const noexcept { return best_value_; }
  const SavedModel& latest_checkpoint() const noexcept { return latest_; }
  /// How many times the gang was restarted, and a sentence on each worker's failure.
  int restarts() const noexcept { return restarts_; }
  const std::vector<std::string>& failures() const noexcept { return failures_; }
  /// How many times the gang moved: it left a node that drains, or grew. A move is no restart.
  int moves() const noexcept { return moves_; }
  /// Returns the number of ranks of the last gang.
  int ranks() const noexcept { return ranks_; }
  /// Returns the step of the checkpoint in FitOptions::run.folder from which the run went on; 0:
  /// it began at step 1.
  long resumed_from() const noexcept { return resumed_from_; }
  /// Loads the best checkpoint. Throws InvalidArgument when there is none, and as load_model().
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
  int restarts_ = 0, moves_ = 0, ranks_ = 0;
  long resumed_from_ = 0;
  std::vector<std::string> failures_;
};

/// What an observer has reserved for the ranks of its gang.
struct GangReservation {
  int workers = 0;            ///< ranks; 0: nothing is reserved, and the gang may reserve nothing
  double cpus = 0, gpus = 0;  ///< of each rank
  /// This process holds the sum, and all ranks run on its node. Otherwise each rank reserves its own
  /// amounts, on any node.
  bool holds = false;
};

/// Follows a gang while it runs and may end it. A trial of tune is one.
class TROUPE_API GangObserver {
 public:
  virtual ~GangObserver();
  /// Returns the checkpoint that the first gang starts from.
  virtual SavedModel start() = 0;
  /// Called when rank 0 has loaded a checkpoint, with the hash of the loaded model.
  virtual void restored(std::uint64_t hash) = 0;
  /// Called for each complete report. Returns whether the gang continues. `saved` is empty unless
  /// the checkpoint is of this very step. May block.
  virtual bool reported(const Metrics& metrics, const SavedModel& saved) = 0;
  /// Called when the gang restarts, with a sentence on the reason and the step to start from.
  virtual void restarted(const std::string& why, long step) = 0;
  /// Called each time when all ranks of a gang are ready.
  virtual void began() {}
  /// Returns what the ranks use instead of reserving resources themselves. Nothing: no such rule.
  virtual std::optional<GangReservation> reserved() const { return {}; }
  /// Returns where the ranks print. An empty place: where they would without an observer.
  virtual loops::OutputPlace output() const { return {}; }
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
    // A call whose result is dropped, and not Actor::tell: a failed tell prints on stderr, and
    // orders to a dying rank may fail.
    handle.tell = [actor](const WorkerOrder& order) {
      static_cast<void>(actor.template call<&A::tell>(order));
    };
    handle.watch = [actor](Position at) { static_cast<void>(actor.template call<&A::watch>(at)); };
    handle.want_save = [actor] { static_cast<void>(actor.template call<&A::want_save>()); };
    handle.kill = [actor, ctx] { ctx.kill(actor); };
    return handle;
  };
  return supervise(ctx, options, spawn, observer);
}
}  // namespace internal

/// Runs `loop(Worker&, arguments…)` on every rank and blocks until all loops have ended. Copies
/// the arguments to every worker; give large data as a Ref.
///
/// Throws TaskFailed when an error of the user's program ended the run. Its message names worker
/// and step; is<E>() tells whether it was an exception of type E, and a troupe::Error that the
/// loop threw is its cause. Throws WorkerDied when the cluster failed more often than
/// max_restarts; the last failure is its cause. Throws Infeasible when no node has room for all
/// workers. Throws InvalidArgument for bad options, such as a layout that does not divide the
/// workers, and while another driver has run.folder. Throws Unavailable when three checkpoints in
/// a row could not be written there.
template <auto loop, class... X>
Fit fit(Context& ctx, const FitOptions& options, X&&... arguments) {
  return internal::fit_on<loop>(ctx, options, nullptr, std::forward<X>(arguments)...);
}
/// Like fit() above, with a lambda without captures.
template <class L, class... X>
  requires CodeOnly<L>
Fit fit(Context& ctx, const FitOptions& options, L, X&&... arguments) {
  return internal::fit_on<L{}>(ctx, options, nullptr, std::forward<X>(arguments)...);
}
/// Like fit(), with an observer. The first gang starts from observer.start(). Each report waits
/// for observer.reported(), which runs on the calling thread.
template <auto loop, class... X>
Fit fit_observed(const Context& ctx, const FitOptions& options, GangObserver& observer,
                 X&&... arguments) {
  return internal::fit_on<loop>(ctx, options, &observer, std::forward<X>(arguments)...);
}

}  // namespace troupe::train
