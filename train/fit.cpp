#include "troupe/train/fit.hpp"

#include "troupe/train/internal/meeting.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace troupe::train {

GangObserver::~GangObserver() = default;

Context Fit::checked_context() const {
  if (!best_checkpoint())
    throw InvalidArgument(
        Code::invalid_argument,
        "train: this run made no checkpoint: call w.checkpoint(model) in its loop");
  return Context(troupe::detail::running_engine());
}

namespace internal {
namespace {

void check(const FitOptions& options) {
  if (options.workers < 1 || options.workers > 1024)
    throw InvalidArgument(Code::invalid_argument, "train: workers must be 1 to 1024, not " +
                                                      std::to_string(options.workers));
  if (options.timeout <= Duration::zero())
    throw InvalidArgument(Code::invalid_argument, "train: the timeout must be positive");
}

/// GPUs to reserve for a worker; none, with a notice, where the cluster has none.
double gpus_for(const Context& ctx, const FitOptions& options) {
  if (options.gpus_per_worker <= 0) return 0;
  double gpus = 0;
  for (const NodeInfo& node : ctx.cluster().nodes) gpus += node.gpus;
  if (gpus > 0) return options.gpus_per_worker;
  std::fprintf(stderr, "train: the cluster has no GPU, so %d worker%s on CPUs\n", options.workers,
               options.workers == 1 ? " trains" : "s train");
  return 0;
}

}  // namespace

class Supervisor {
 public:
  Supervisor(Context ctx, const FitOptions& options, const SpawnWorker& spawn,
             GangObserver* observer)
      : ctx_(ctx), options_(options), spawn_(spawn), observer_(observer) {
    if (observer_ != nullptr) start_ = observer_->start();
    with_.cpus = options.cpus_per_worker;
    with_.gpus = gpus_for(ctx, options);
    with_.placement = Placement::on(ctx.node());
  }

  Fit run() {
    for (;; ++fit_.restarts_) {
      const std::string death = run_gang();
      if (death.empty()) return std::move(fit_);
      if (fit_.restarts_ >= options_.max_restarts)
        throw WorkerDied(Code::worker_died, "train: " + death + ", after " +
                                                std::to_string(fit_.restarts_) + " restarts");
      if (fit_.latest_) start_ = fit_.latest_;
      forget_after(start_ ? start_.step : 0);
      if (observer_ != nullptr) observer_->restarted(death, start_.step);
    }
  }

 private:
  using Events = std::vector<WorkerEvent>;

  struct Member {
    WorkerHandle worker;
    Ref<Events> next;
    bool over = false;
  };

  WorkerSetup setup(int rank, const std::string& meeting) const {
    WorkerSetup setup;
    setup.rank = rank;
    setup.world = options_.workers;
    setup.incarnation = fit_.restarts_;
    setup.verdicts = observer_ != nullptr;
    setup.meeting = meeting;
    setup.generation = static_cast<std::uint64_t>(fit_.restarts_) + 1;
    setup.timeout_ms = std::chrono::ceil<std::chrono::milliseconds>(options_.timeout).count();
    setup.start = start_;
    return setup;
  }

  /// One gang from its start to its end; the result says who died, or nothing.
  std::string run_gang() {
    members_.clear();
    const std::string meeting = meeting_name();
    for (int rank = 0; rank < options_.workers; ++rank)
      members_.push_back({spawn_(setup(rank, meeting), with_), {}, false});
    const struct Down {
      Supervisor& all;
      ~Down() {
        for (const Member& m : all.members_) m.worker.kill();
        all.members_.clear();
      }
    } down{*this};
    death_.clear();
    died_ = false;
    threw_.clear();
    grace_ = Time::max();
    for (Member& m : members_) m.next = m.worker.take();
    while (watch()) {
    }
    if (!threw_.empty()) throw TaskFailed(Code::task_failed, "train: " + threw_, Outcome::executed);
    return death_;
  }

  /// Waits for the next events; false when there is nothing more to wait for.
  bool watch() {
    std::vector<Ref<Events>> open;
    for (const Member& m : members_)
      if (!m.over) open.push_back(m.next);
    if (open.empty()) return false;
    const Duration left = grace_ == Time::max() ? forever : grace_ - steady_now();
    if (left <= Duration::zero()) return false;
    static_cast<void>(ctx_.wait(open, {.count = 1, .timeout = left}));
    for (std::size_t rank = 0; rank < members_.size(); ++rank) {
      Member& m = members_[rank];
      if (m.over) continue;
      if (const auto events = ctx_.try_get(m.next, Duration::zero())) {
        for (const WorkerEvent& event : *events) happened(rank, event);
        if (!m.over) m.next = m.worker.take();
      } else if (events.error().code() != Code::timed_out) {
        lost(rank, events.error());
      }
    }
    return true;
  }

  /// After the first failure the others have a moment to say how it ended for them.
  void note(std::size_t rank, const std::string& what) {
    fit_.failures_.push_back("worker " + std::to_string(rank) + " at step " +
                             std::to_string(fit_.last_.step) + ": " + what);
    grace_ = std::min(grace_, steady_now() + std::chrono::seconds(2));
  }

  void lost(std::size_t rank, const Error& error) {
    members_[rank].over = true;
    note(rank, error.message());
    if (died_) return;  // the first death is the cause, even where its echo was heard before it
    died_ = true;
    death_ = "worker " + std::to_string(rank) + " died: " + error.message();
  }

  void happened(std::size_t rank, const WorkerEvent& event) {
    using Kind = WorkerEvent::Kind;
    if (event.kind == Kind::saved) return saved(event.saved);
    if (event.kind == Kind::reported) return reported(event.metrics);
    if (event.kind == Kind::restored) {
      if (observer_ != nullptr && fit_.restarts_ == 0) observer_->restored(event.hash);
      return;
    }
    members_[rank].over = true;
    if (!event.failed) return;
    note(rank, event.error);
    if (!event.by_others) {
      threw_ = "the loop of worker " + std::to_string(rank) + " threw: " + event.error;
    } else if (death_.empty()) {
      death_ = "worker " + std::to_string(rank) + " lost the others: " + event.error;
    }
  }

  void reported(const Metrics& metrics) {
    fit_.last_ = metrics;
    fit_.history_.push_back(metrics);
    keep_best();
    if (observer_ == nullptr) return;
    const bool same = fit_.latest_ && fit_.latest_.step == metrics.step;
    // A step that a restart repeats was judged already.
    const bool known = metrics.step <= judged_;
    const bool go_on = known || observer_->reported(metrics, same ? fit_.latest_ : SavedModel{});
    judged_ = std::max(judged_, metrics.step);
    members_[0].worker.reply(go_on);
  }

  void saved(const SavedModel& model) {
    fit_.latest_ = model;
    keep_best();
  }

  /// A checkpoint and a report of one step belong together.
  void keep_best() {
    if (!fit_.latest_ || fit_.last_.step != fit_.latest_.step || !std::isfinite(fit_.last_.loss))
      return;
    if (fit_.best_ && fit_.best_loss_ <= fit_.last_.loss) return;
    fit_.best_ = fit_.latest_;
    fit_.best_loss_ = fit_.last_.loss;
  }

  void forget_after(long step) {
    std::erase_if(fit_.history_, [step](const Metrics& m) { return m.step > step; });
  }

  Context ctx_;
  const FitOptions& options_;
  const SpawnWorker& spawn_;
  GangObserver* observer_;
  ActorOptions with_;
  SavedModel start_;
  Fit fit_;
  std::vector<Member> members_;
  std::string death_, threw_;  ///< why this gang ended: without somebody, or by its loop's error
  bool died_ = false;          ///< death_ names who died and not who missed somebody
  Time grace_ = Time::max();
  long judged_ = 0;
};

Fit supervise(Context ctx, const FitOptions& options, const SpawnWorker& spawn,
              GangObserver* observer) {
  check(options);
  return Supervisor(ctx, options, spawn, observer).run();
}

}  // namespace internal
}  // namespace troupe::train
