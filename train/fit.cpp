#include "troupe/train/fit.hpp"

#include "troupe/actors/collective/shm/rendezvous.hpp"
#include "troupe/train/internal/gang_place.hpp"
#include "troupe/train/internal/gang_verdict.hpp"
#include "troupe/train/internal/reject.hpp"
#include "troupe/train/internal/reports.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <thread>

namespace troupe::train {

GangObserver::~GangObserver() = default;

Context Fit::checked_context() const {
  if (!best_checkpoint())
    internal::reject("train: this run made no checkpoint: call w.checkpoint(model) in its loop");
  return Context(troupe::detail::running_engine());
}

namespace internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

void check_amount(const char* what, double amount) {
  if (!std::isfinite(amount) || amount < 0)
    reject(fmt::format("train: {} is {}: give a number that is not negative", what, amount));
}

/// The layout with its dp. Throws InvalidArgument when it does not make up the workers.
Layout layout_of(const FitOptions& options) {
  Layout layout = options.layout;
  const std::int64_t model = std::int64_t{layout.tp} * layout.pp;
  if (layout.dp == 1 && model > 0 && options.workers % model == 0)
    layout.dp = static_cast<int>(options.workers / model);
  train::check(layout, options.workers);
  return layout;
}

void check(const FitOptions& options) {
  if (options.workers < 1 || options.workers > 1024)
    reject("train: workers must be 1 to 1024, not " + std::to_string(options.workers));
  if (options.max_restarts < -1)
    reject("train: max_restarts is " + std::to_string(options.max_restarts) +
           ": give -1 (without limit), 0 or more");
  require(options.timeout > Duration::zero(),
          "train: the timeout must be positive; troupe::forever sets no limit");
  require(!options.metric.empty(),
          "train: FitOptions.metric is empty: name the loss or one of Metrics::extra");
  check_amount("cpus_per_worker", options.cpus_per_worker);
  check_amount("gpus_per_worker", options.gpus_per_worker);
  if (options.gpus_per_worker > 1 && options.gpus_per_worker != std::floor(options.gpus_per_worker))
    reject(fmt::format("train: gpus_per_worker is {}: give a whole number, or less than one",
                       options.gpus_per_worker));
}

/// GPUs to reserve for a worker. Throws Infeasible where the cluster has none, unless CPUs will do.
double gpus_for(const Context& ctx, const FitOptions& options) {
  if (options.gpus_per_worker <= 0) return 0;
  double gpus = 0;
  for (const NodeInfo& node : ctx.cluster().nodes) gpus += node.alive ? node.gpus : 0;
  if (gpus > 0) return options.gpus_per_worker;
  if (!options.cpus_if_no_gpu)
    throw Infeasible(Code::infeasible,
                     fmt::format("train: gpus_per_worker is {} and the cluster has no GPU: add a "
                                 "node with GPUs, or set gpus_per_worker to 0 or cpus_if_no_gpu to "
                                 "train on CPUs",
                                 options.gpus_per_worker));
  std::fprintf(stderr, "train: the cluster has no GPU, so %d worker%s on CPUs\n", options.workers,
               options.workers == 1 ? " trains" : "s train");
  return 0;
}

/// Up to `most`, at random, so that two gangs that met once do not meet again.
Duration some_of(Duration most) {
  std::random_device random;
  return most / 1000 * (random() % 1000);
}

}  // namespace

class Supervisor {
 public:
  Supervisor(Context ctx, const FitOptions& options, const SpawnWorker& spawn,
             GangObserver* observer)
      : ctx_(ctx),
        options_(options),
        layout_(layout_of(options)),
        spawn_(spawn),
        observer_(observer) {
    if (observer_ != nullptr) start_ = first_start_ = observer_->start();
    with_.cpus = options.cpus_per_worker;
    with_.gpus = gpus_for(ctx, options);
  }

  Fit run() {
    for (;;) {
      if (run_gang()) break;
      const Error failure = verdict_->error();
      if (options_.max_restarts >= 0 && fit_.restarts_ >= options_.max_restarts) give_up(failure);
      start_again(failure);
    }
    if (fit_.latest_ && !fit_.best_)
      std::fprintf(stderr,
                   "train: no step with a checkpoint had a finite '%s' in its report: the latest "
                   "checkpoint counts as the best\n",
                   options_.metric.c_str());
    return std::move(fit_);
  }

 private:
  struct Member {
    WorkerHandle worker;
    Ref<Taken> next;
    bool ready = false;
  };
  using End = GangVerdict::End;

  [[noreturn]] void give_up(const Error& failure) const {
    ErrorInfo info = failure.info();
    info.code = Code::worker_died;
    info.message += ", after " + std::to_string(fit_.restarts_) + " restarts";
    throw WorkerDied(std::move(info));
  }

  void start_again(const Error& failure) {
    ++fit_.restarts_;
    choose_start();
    forget_after(start_ ? start_.step : 0);
    if (observer_ != nullptr) observer_->restarted(without_room(failure.message()), start_.step);
    // Who fails again and again without getting further is not started in a hot loop.
    if (start_.step > restarted_from_) unlucky_ = 0;
    restarted_from_ = start_.step;
    if (unlucky_ > 0)
      std::this_thread::sleep_for(
          std::min<Duration>(milliseconds(50) * (1 << std::min(unlucky_, 8)), seconds(10)));
    ++unlucky_;
  }

  /// The latest checkpoint that is still there: its node may have gone with the gang.
  void choose_start() {
    for (SavedModel* kept : {&fit_.latest_, &fit_.best_, &first_start_}) {
      if (!*kept) continue;
      if (is_there(*kept)) {
        start_ = *kept;
        if (!fit_.latest_) fit_.latest_ = fit_.best_;
        return;
      }
      fit_.failures_.push_back("the checkpoint of step " + std::to_string(kept->step) + " is lost");
      if (kept == &fit_.best_) fit_.best_value_.reset();
      *kept = {};
    }
    start_ = {};
  }

  bool is_there(const SavedModel& saved) const {
    using State = ObjectLocation::State;
    const std::vector<Ref<Array<std::uint8_t>>> refs{saved.model};
    const State state = ctx_.locations(refs).front().state;
    return state == State::small || state == State::large;
  }

  WorkerSetup setup(int rank, const std::string& meeting) const {
    WorkerSetup setup;
    setup.rank = rank;
    setup.world = options_.workers;
    setup.incarnation = fit_.restarts_;
    setup.verdicts = observer_ != nullptr;
    setup.metric = options_.metric;
    setup.meeting = meeting;
    setup.generation = static_cast<std::uint64_t>(fit_.restarts_) + 1;
    setup.timeout_ns = options_.timeout.count();
    setup.layout = layout_;
    setup.cpus = options_.cpus_per_worker;
    setup.gpus = with_.gpus;
    setup.start = start_;
    return setup;
  }

  /// One gang from its start to its end; false when it is to be started again. Throws what ends
  /// the run.
  bool run_gang() {
    const struct Down {
      Supervisor& all;
      ~Down() {
        for (const Member& m : all.members_) m.worker.kill();
        all.members_.clear();
      }
    } down{*this};
    while (!gather()) {
      for (const Member& m : members_) m.worker.kill();
      std::this_thread::sleep_for(some_of(seconds(1)));
    }
    if (verdict_->end() == End::open && !verdict_->troubled())
      for (const Member& m : members_) m.worker.begin();
    while (verdict_->end() == End::open) watch();
    settle_reports();
    const End end = verdict_->end();
    if (end != End::error) return end == End::done;
    const Error error = verdict_->error();
    // A node that goes takes the place of ranks away that have not begun: the next gang has
    // another.
    if (error.code() == Code::infeasible && !is_alive(with_.placement.node())) return false;
    raise(error);
  }

  bool is_alive(NodeId id) const {
    const std::vector<NodeInfo> nodes = ctx_.cluster().nodes;
    return std::any_of(nodes.begin(), nodes.end(),
                       [id](const NodeInfo& node) { return node.id == id && node.alive; });
  }

  NodeId node_for_all() const {
    try {
      return place_for(ctx_, need_of(options_.workers, options_.cpus_per_worker, with_.gpus));
    } catch (const Infeasible& e) {
      throw Infeasible(Code::infeasible,
                       fmt::format("train: a gang of {} {}: use fewer workers, reserve less for "
                                   "each of them, or add a larger node",
                                   options_.workers, e.message()));
    }
  }

  /// Makes the ranks and waits until each has its place; false when some had to wait so long for
  /// theirs that two gangs may be waiting for each other.
  bool gather() {
    verdict_.emplace(options_.workers);
    reports_.emplace(options_.workers, options_.metric, options_.reduce);
    grace_ = Time::max();
    with_.placement = Placement::on(node_for_all());
    members_.clear();
    const std::string meeting = collective::new_rendezvous_name();
    for (int rank = 0; rank < options_.workers; ++rank)
      members_.push_back({spawn_(setup(rank, meeting), with_), {}, false});
    for (Member& m : members_) m.next = m.worker.take();
    Time limit = Time::max();  // those that reserve nothing cannot hold what others wait for
    const bool reserves = with_.cpus > 0 || with_.gpus > 0;
    const auto ready = [](const Member& m) { return m.ready; };
    while (verdict_->end() == End::open && !std::all_of(members_.begin(), members_.end(), ready)) {
      if (reserves && limit == Time::max() && std::any_of(members_.begin(), members_.end(), ready))
        limit = steady_now() + gather_within_;
      if (steady_now() >= limit && !verdict_->troubled()) {
        gather_within_ = std::min<Duration>(2 * gather_within_, seconds(30));
        return false;
      }
      watch(limit);
    }
    return true;
  }

  /// Waits for the next events, at most until then.
  void watch(Time until = Time::max()) {
    std::vector<Ref<Taken>> open;
    for (std::size_t rank = 0; rank < members_.size(); ++rank)
      if (!verdict_->over(static_cast<int>(rank))) open.push_back(members_[rank].next);
    static_cast<void>(
        ctx_.wait(open, {.count = 1, .timeout = time_left(std::min(until, grace_), steady_now())}));
    for (std::size_t rank = 0; rank < members_.size(); ++rank) {
      if (verdict_->over(static_cast<int>(rank))) continue;
      Member& m = members_[rank];
      if (const auto taken = ctx_.try_get(m.next, Duration::zero()))
        heard(static_cast<int>(rank), *taken);
      else if (taken.error().code() != Code::timed_out)
        lost(static_cast<int>(rank), taken.error());
    }
    judge_reports();
    if (verdict_->troubled()) grace_ = std::min(grace_, steady_now() + seconds(2));
    if (steady_now() >= grace_) verdict_->stop_waiting();
  }

  void heard(int rank, const Taken& taken) {
    for (const WorkerEvent& event : taken.events) happened(rank, event);
    reports_->passed(rank, taken.now);
    Member& m = members_[static_cast<std::size_t>(rank)];
    if (verdict_->over(rank))
      reports_->over(rank);
    else
      m.next = m.worker.take();
  }

  void lost(int rank, const Error& error) {
    note(rank, fit_.last_.step, error);
    verdict_->died(rank, fit_.last_.step, error);
    reports_->over(rank);
  }

  void note(int rank, long step, const Error& error) {
    fit_.failures_.push_back("worker " + std::to_string(rank) + " at step " + std::to_string(step) +
                             ": " + error.message());
  }

  void happened(int rank, const WorkerEvent& event) {
    using Kind = WorkerEvent::Kind;
    switch (event.kind) {
      case Kind::ready: members_[static_cast<std::size_t>(rank)].ready = true; return;
      case Kind::reported: reports_->reported(rank, event.at, event.metrics); return;
      case Kind::saved: saved(event.saved); return;
      case Kind::restored:
        if (observer_ != nullptr && fit_.restarts_ == 0) observer_->restored(event.hash);
        return;
      case Kind::ended: break;
    }
    const std::optional<Error> error = error_of(event.error);
    if (!error) return verdict_->returned(rank, event.at.step);
    note(rank, event.at.step, *error);
    verdict_->failed(rank, {event.at.step, *error, event.missed_others, event.missed_rank});
  }

  void judge_reports() {
    while (const auto report = reports_->next()) {
      reported(*report);
      if (observer_ == nullptr) continue;
      const Metrics& metrics = report->metrics;
      const bool same = fit_.latest_ && fit_.latest_.step == metrics.step;
      // A step that a restart repeats was judged already.
      const bool known = metrics.step <= judged_;
      const bool go_on = known || observer_->reported(metrics, same ? fit_.latest_ : SavedModel{});
      judged_ = std::max(judged_, metrics.step);
      members_.front().worker.reply(go_on);
    }
  }

  /// Of a gang that has ended: what it reported and the next one does not report again.
  void settle_reports() {
    for (int rank = 0; rank < options_.workers; ++rank) reports_->over(rank);
    while (const auto report = reports_->next()) {
      reported(*report);
      const Metrics& metrics = report->metrics;
      if (observer_ == nullptr || metrics.step <= judged_ || metrics.step > fit_.latest_.step)
        continue;
      const bool same = fit_.latest_.step == metrics.step;
      static_cast<void>(observer_->reported(metrics, same ? fit_.latest_ : SavedModel{}));
      judged_ = metrics.step;
    }
  }

  void reported(const Reports::Complete& report) {
    fit_.last_ = report.metrics;
    fit_.history_.push_back(report.metrics);
    valued_ = report.value && std::isfinite(*report.value) ? report.value : std::nullopt;
    valued_step_ = report.metrics.step;
    keep_best(fit_.latest_);
    for (const SavedModel& model : unjudged_)
      if (model.step == valued_step_) keep_best(model);
    std::erase_if(unjudged_, [this](const SavedModel& m) { return m.step <= valued_step_; });
  }

  void saved(const SavedModel& model) {
    if (fit_.latest_ && reports_->awaits(fit_.latest_.step)) unjudged_.push_back(fit_.latest_);
    fit_.latest_ = model;
    keep_best(model);
  }

  /// A checkpoint and a report of one step belong together.
  void keep_best(const SavedModel& model) {
    if (!model || !valued_ || model.step != valued_step_) return;
    const double value = *valued_;
    if (fit_.best_ && fit_.best_value_ &&
        !(options_.maximize ? value > *fit_.best_value_ : value < *fit_.best_value_))
      return;
    fit_.best_ = model;
    fit_.best_value_ = value;
  }

  void forget_after(long step) {
    std::erase_if(fit_.history_, [step](const Metrics& m) { return m.step > step; });
    unjudged_.clear();
    valued_.reset();
    valued_step_ = 0;
  }

  static std::string without_room(const std::string& message) {
    constexpr std::string_view room = "train: ";
    return message.starts_with(room) ? message.substr(room.size()) : message;
  }

  Context ctx_;
  const FitOptions& options_;
  const Layout layout_;
  const SpawnWorker& spawn_;
  GangObserver* observer_;
  ActorOptions with_;
  SavedModel start_, first_start_;
  Fit fit_;
  std::vector<Member> members_;
  std::optional<GangVerdict> verdict_;  // of the present gang, as the next two
  std::optional<Reports> reports_;
  Duration gather_within_ = seconds(1);  // longer each time: starts may be slow
  Time grace_ = Time::max();             // for the others, after a failure
  std::vector<SavedModel> unjudged_;     // whose reports are not complete
  std::optional<double> valued_;         // of the last report, if it had a finite one
  long valued_step_ = 0;
  long judged_ = 0;
  long restarted_from_ = 0;
  int unlucky_ = 0;  // restarts without a new checkpoint
};

Fit supervise(Context ctx, const FitOptions& options, const SpawnWorker& spawn,
              GangObserver* observer) {
  check(options);
  return Supervisor(ctx, options, spawn, observer).run();
}

}  // namespace internal
}  // namespace troupe::train
