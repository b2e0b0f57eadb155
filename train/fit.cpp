#include "troupe/train/fit.hpp"

#include "troupe/actors/collective/shm/rendezvous.hpp"
#include "troupe/runtime/base/log.hpp"
#include "troupe/train/internal/gang_place.hpp"
#include "troupe/train/internal/gang_ranks.hpp"
#include "troupe/train/internal/kept_checkpoints.hpp"
#include "troupe/train/internal/reject.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <random>
#include <thread>

namespace troupe::train {

GangObserver::~GangObserver() = default;

Context Fit::checked_context() const {
  if (!best_checkpoint())
    internal::reject("train: this run made no checkpoint: call w.checkpoint(model) in its loop");
  return Context::current();
}

namespace internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

void check_amount(const char* what, double amount) {
  if (!std::isfinite(amount) || amount < 0)
    reject(fmt::format("train: {} is {}: give a number that is not negative", what, amount));
}

/// Returns the layout with its dp filled in. Throws InvalidArgument when its sizes do not
/// multiply to the workers.
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

/// Returns the GPUs to reserve for each worker. Throws Infeasible when the cluster has none,
/// unless cpus_if_no_gpu is set.
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
  log_line("train: the cluster has no GPU, so %d worker%s on CPUs", options.workers,
           options.workers == 1 ? " trains" : "s train");
  return 0;
}

/// Returns a random duration up to `most`, so that two gangs that waited for each other do not
/// collide again.
Duration some_of(Duration most) {
  std::random_device random;
  return most / 1000 * (random() % 1000);
}

}  // namespace

/// Runs gangs one after the other until the loop has ended, and keeps reports and checkpoints.
class Supervisor : private GangRanks::Host {
 public:
  Supervisor(Context ctx, const FitOptions& options, const SpawnWorker& spawn,
             GangObserver* observer)
      : ctx_(ctx),
        options_(options),
        layout_(layout_of(options)),
        spawn_(spawn),
        observer_(observer),
        kept_(options.maximize) {
    if (observer_ != nullptr) start_ = first_start_ = observer_->start();
    with_.cpus = options.cpus_per_worker;
    with_.gpus = gpus_for(ctx, options);
  }

  Fit run() {
    for (;;) {
      if (run_gang()) break;
      const Error failure = gang_->verdict().error();
      if (options_.max_restarts >= 0 && fit_.restarts_ >= options_.max_restarts) give_up(failure);
      start_again(failure);
    }
    if (kept_.latest && !kept_.best)
      log_line(
          "train: no step with a checkpoint had a finite '%s' in its report: the latest checkpoint "
          "counts as the best",
          options_.metric.c_str());
    fit_.latest_ = kept_.latest;
    fit_.best_ = kept_.best;
    fit_.best_value_ = kept_.best_value;
    return std::move(fit_);
  }

 private:
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
    // Exponential backoff while restarts bring no new checkpoint.
    if (start_.step > restarted_from_) unlucky_ = 0;
    restarted_from_ = start_.step;
    if (unlucky_ > 0)
      std::this_thread::sleep_for(
          std::min<Duration>(milliseconds(50) * (1 << std::min(unlucky_, 8)), seconds(10)));
    ++unlucky_;
  }

  /// Sets start_ to the latest checkpoint that still exists; a checkpoint may be lost with its
  /// node.
  void choose_start() {
    for (SavedModel* kept : {&kept_.latest, &kept_.best, &first_start_}) {
      if (!*kept) continue;
      if (is_there(*kept)) {
        start_ = *kept;
        if (!kept_.latest) kept_.latest = kept_.best;
        return;
      }
      fit_.failures_.push_back("the checkpoint of step " + std::to_string(kept->step) + " is lost");
      if (kept == &kept_.best) kept_.best_value.reset();
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

  WorkerSetup setup(int rank, const std::string& rendezvous) const {
    WorkerSetup setup;
    setup.rank = rank;
    setup.world = options_.workers;
    setup.incarnation = fit_.restarts_;
    setup.verdicts = observer_ != nullptr;
    setup.metric = options_.metric;
    setup.rendezvous = rendezvous;
    setup.generation = static_cast<std::uint64_t>(fit_.restarts_) + 1;
    setup.timeout_ns = options_.timeout.count();
    setup.layout = layout_;
    setup.cpus = options_.cpus_per_worker;
    setup.gpus = with_.gpus;
    setup.start = start_;
    return setup;
  }

  /// Runs one gang from its start to its end. Returns false when the gang is to be restarted.
  /// Throws the error that ends the run.
  bool run_gang() {
    const struct Down {
      Supervisor& all;
      ~Down() {
        if (all.gang_) all.gang_->take_down();
      }
    } down{*this};
    while (!gather()) {
      gang_->take_down();
      std::this_thread::sleep_for(some_of(seconds(1)));
    }
    const GangVerdict& verdict = gang_->verdict();
    if (verdict.end() == End::open && !verdict.troubled()) gang_->begin();
    while (verdict.end() == End::open) watch();
    settle_reports();
    const End end = verdict.end();
    if (end != End::error) return end == End::done;
    const Error error = verdict.error();
    // When a node dies, ranks that have not begun lose their place and fail with Infeasible. The
    // next gang gets another node.
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

  /// Makes the ranks and waits until each has its place. Returns false when some rank waits so
  /// long that two gangs may be waiting for each other's resources.
  bool gather() {
    with_.placement = Placement::on(node_for_all());
    gang_.emplace(options_, static_cast<GangRanks::Host&>(*this));
    const std::string rendezvous = collective::new_rendezvous_name();
    for (int rank = 0; rank < options_.workers; ++rank)
      gang_->add(spawn_(setup(rank, rendezvous), with_));
    Time limit = Time::max();  // ranks that reserve nothing cannot deadlock with another gang
    const bool reserves = with_.cpus > 0 || with_.gpus > 0;
    while (gang_->verdict().end() == End::open && !gang_->all_ready()) {
      if (reserves && limit == Time::max() && gang_->any_ready())
        limit = steady_now() + gather_within_;
      if (steady_now() >= limit && !gang_->verdict().troubled()) {
        gather_within_ = std::min<Duration>(2 * gather_within_, seconds(30));
        return false;
      }
      watch(limit);
    }
    return true;
  }

  void watch(Time until = Time::max()) {
    gang_->hear(until);
    judge_reports();
    gang_->look_after();
  }

  // GangRanks::Host
  void saved(const SavedModel& model) override {
    kept_.saved(model, gang_->reports().awaits(kept_.latest.step));
  }
  void restored(std::uint64_t hash) override {
    if (observer_ != nullptr && fit_.restarts_ == 0) observer_->restored(hash);
  }
  void died(int rank, const Error& error) override {
    note(rank, fit_.last_.step, error);
    gang_->verdict().died(rank, fit_.last_.step, error);
  }
  void failed(int rank, long step, const Error& error) override { note(rank, step, error); }

  void note(int rank, long step, const Error& error) {
    fit_.failures_.push_back("worker " + std::to_string(rank) + " at step " + std::to_string(step) +
                             ": " + error.message());
  }

  void judge_reports() {
    while (const auto report = gang_->reports().next()) {
      reported(*report);
      if (observer_ == nullptr) continue;
      const Metrics& metrics = report->metrics;
      // A step that a restart repeats was judged before.
      const bool known = metrics.step <= judged_;
      const bool go_on = known || observer_->reported(metrics, saved_in(metrics.step));
      judged_ = std::max(judged_, metrics.step);
      gang_->judge(go_on);
    }
  }

  /// Hands on the reports of a gang that has ended which the next gang does not report again.
  void settle_reports() {
    for (int rank = 0; rank < options_.workers; ++rank) gang_->reports().over(rank);
    while (const auto report = gang_->reports().next()) {
      reported(*report);
      const Metrics& metrics = report->metrics;
      if (observer_ == nullptr || metrics.step <= judged_ || metrics.step > kept_.latest.step)
        continue;
      static_cast<void>(observer_->reported(metrics, saved_in(metrics.step)));
      judged_ = metrics.step;
    }
  }

  void reported(const Reports::Complete& report) {
    fit_.last_ = report.metrics;
    fit_.history_.push_back(report.metrics);
    kept_.valued(report.metrics.step, report.value);
  }

  /// Returns the latest checkpoint if it is of this very step.
  SavedModel saved_in(long step) const {
    return kept_.latest && kept_.latest.step == step ? kept_.latest : SavedModel{};
  }

  void forget_after(long step) {
    std::erase_if(fit_.history_, [step](const Metrics& m) { return m.step > step; });
    kept_.start_again();
  }

  static std::string without_room(const std::string& message) {
    constexpr std::string_view kRoom = "train: ";
    return message.starts_with(kRoom) ? message.substr(kRoom.size()) : message;
  }

  Context ctx_;
  const FitOptions& options_;
  const Layout layout_;
  const SpawnWorker& spawn_;
  GangObserver* observer_;
  ActorOptions with_;
  SavedModel start_, first_start_;
  Fit fit_;
  KeptCheckpoints kept_;
  std::optional<GangRanks> gang_;        // the present gang, or the last one
  Duration gather_within_ = seconds(1);  // doubles, up to 30 s, as starts may be slow
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
