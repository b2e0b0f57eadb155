#include "troupe/train/fit.hpp"

#include "troupe/actors/collective/shm/rendezvous.hpp"
#include "troupe/actors/loop_actor/loop_controller.hpp"
#include "troupe/runtime/base/environment.hpp"
#include "troupe/runtime/base/log.hpp"
#include "troupe/runtime/base/random_bytes.hpp"
#include "troupe/runtime/base/secret.hpp"
#include "troupe/train/internal/gang_core.hpp"
#include "troupe/train/internal/reject.hpp"
#include "troupe/train/internal/run_folder.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <variant>

namespace troupe::train {

GangObserver::~GangObserver() = default;

Context Fit::checked_context() const {
  if (!best_checkpoint())
    internal::reject("train: this run made no checkpoint: call w.checkpoint(model) in its loop");
  return Context::current();
}

namespace internal {
namespace {

void check_amount(const char* what, double amount) {
  if (!std::isfinite(amount) || amount < 0)
    reject(fmt::format("train: {} is {}: give a number that is not negative", what, amount));
}

constexpr int kMostWorkers = 1024;
/// How long the next gang waits for a checkpoint to arrive at this node.
constexpr Duration kCopyWait = std::chrono::seconds(2);

/// Returns the layout of the smallest gang, with its dp filled in. Throws InvalidArgument when its
/// sizes do not multiply to the workers.
Layout layout_of(const FitOptions& options) {
  Layout layout = options.layout;
  const auto [least, most] = options.workers;
  const std::int64_t model = std::int64_t{layout.tp} * layout.pp;
  if (least != most && layout.dp != 1)
    reject(
        fmt::format("train: layout.dp is {} and the workers are {{{}, {}}}: leave dp at 1, since "
                    "it follows from the size of the gang",
                    layout.dp, least, most));
  if (least != most && model > 0 && least % model != 0)
    reject(
        fmt::format("train: at least {} workers do not divide into tp * pp = {}: let the least "
                    "number be {}",
                    least, model, (least / model + 1) * model));
  if (layout.dp == 1 && model > 0 && least % model == 0)
    layout.dp = static_cast<int>(least / model);
  train::check(layout, least);
  return layout;
}

void check_workers(const FitOptions& options, bool in_trial) {
  const auto [least, most] = options.workers;
  for (const int number : {least, most})
    if (number < 1 || number > kMostWorkers)
      reject(fmt::format("train: workers must be 1 to {}, not {}", kMostWorkers, number));
  if (least > most)
    reject(fmt::format("train: workers are {{{}, {}}}: give the least number first", least, most));
  if (least == most) return;
  if (in_trial)
    reject(
        fmt::format("train: workers are {{{}, {}}} in a trial, whose size stays the same: give "
                    "one number",
                    least, most));
  if (options.cpus_per_worker <= 0 && options.gpus_per_worker <= 0)
    reject(
        fmt::format("train: workers are {{{}, {}}} and reserve nothing, so no room limits them: "
                    "set cpus_per_worker, or give one number",
                    least, most));
}

void check(const FitOptions& options, bool in_trial) {
  check_workers(options, in_trial);
  if (options.max_restarts < -1)
    reject("train: max_restarts is " + std::to_string(options.max_restarts) +
           ": give -1 (without limit), 0 or more");
  require(options.timeout > Duration::zero(),
          "train: the timeout must be positive; troupe::forever sets no limit");
  require(!options.metric.empty(),
          "train: FitOptions.metric is empty: name the loss or one of Metrics::extra");
  check_run(options);
  require(
      !in_trial || options.run.folder.empty(),
      "train: a trial has no run.folder: leave it empty, since the trial keeps its checkpoints");
  require(options.grow_after >= Duration::zero(),
          "train: grow_after is negative: give the time that a gang waits before it grows");
  require(
      options.placement.kind() != Placement::on({}).kind(),
      "train: the placement of a gang is Placement::pack or Placement::spread: to use one node, "
      "give the others no CPUs that are free");
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
  log_line("train: the cluster has no GPU, so %d worker%s on CPUs", options.workers.most,
           options.workers.most == 1 ? " trains" : "s train");
  return 0;
}

std::uint64_t random_seed() {
  std::uint64_t seed = 0;
  fill_random(std::as_writable_bytes(std::span(&seed, 1)));
  return seed;
}

/// Returns a checkpoint's bytes as an object of the node that runs the task.
Array<std::uint8_t> copied(const Array<std::uint8_t>& model) {
  return model;
}

using Reserved = std::optional<GangReservation>;

/// Throws InvalidArgument when a rank asks for more than is reserved for it.
void check_reserved(const FitOptions& options, const GangReservation& reserved) {
  const auto more = [](const char* option, double asked, const char* member, double has) {
    if (asked > has)
      reject(
          fmt::format("train: {} is {} in a trial whose tune::Options::per_trial.{} is {}: reserve "
                      "there what a rank needs",
                      option, asked, member, has));
  };
  const bool none = reserved.workers < 1;
  if (none && options.cpus_per_worker <= 0 && options.gpus_per_worker <= 0) return;
  more("workers", options.workers.most, "workers", reserved.workers);
  more("cpus_per_worker", options.cpus_per_worker, "cpus", reserved.cpus);
  more("gpus_per_worker", options.gpus_per_worker, "gpus", reserved.gpus);
}

GangPlan plan_of(const Context& ctx, const FitOptions& options, bool in_trial,
                 const Reserved& reserved) {
  if (reserved) check_reserved(options, *reserved);
  GangPlan plan;
  plan.layout = layout_of(options);
  plan.least = options.workers.least;
  const int step = plan.layout.tp * plan.layout.pp;
  plan.most = plan.least + (options.workers.most - plan.least) / step * step;
  plan.cpus = options.cpus_per_worker;
  const bool of_trial = reserved && reserved->workers > 0;
  if (!of_trial) {
    plan.gpus = gpus_for(ctx, options);
  } else if (!reserved->holds) {
    plan.cpus = reserved->cpus;
    plan.gpus = reserved->gpus;
  } else {
    plan.cpus = 0;
  }
  plan.spread = options.placement.kind() == Placement::spread.kind();
  plan.max_restarts = options.max_restarts;
  plan.grow_after = options.grow_after;
  plan.verdicts = in_trial;
  plan.moves = !in_trial;
  plan.metric = options.metric;
  plan.reduce = options.reduce;
  plan.maximize = options.maximize;
  plan.folder = !options.run.folder.empty();
  plan.driver = ctx.node();
  plan.seed = random_seed();
  return plan;
}

}  // namespace

/// Does what GangCore says: spawns, orders and kills ranks, and tells it what they say.
class Supervisor {
 public:
  Supervisor(Context ctx, const FitOptions& options, const SpawnWorker& spawn,
             GangObserver* observer)
      : ctx_(ctx),
        options_(options),
        spawn_(spawn),
        observer_(observer),
        folder_(options.run.folder.empty() ? nullptr : std::make_unique<RunFolder>(options)),
        reserved_(observer != nullptr ? observer->reserved() : std::nullopt),
        core_(plan_of(ctx, options, observer != nullptr, reserved_), first_start()) {
    take_notes();
  }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  ~Supervisor() { kill(); }

  Fit run() {
    core_.begin(steady_now());
    for (;;) {
      for (std::vector<GangAct> acts = core_.take(); !acts.empty(); acts = core_.take())
        for (GangAct& each : acts) std::visit([this](auto& what) { perform(what); }, each);
      if (core_.state() == GangCore::State::ended) return result();
      wait(core_.next());
    }
  }

 private:
  Fit result() {
    const GangCore::Results& results = core_.results();
    const KeptCheckpoints& kept = core_.kept();
    if (kept.latest && !kept.best)
      log_line(
          "train: no step with a checkpoint had a finite '%s' in its report: the latest checkpoint "
          "counts as the best",
          options_.metric.c_str());
    Fit fit;
    fit.last_ = results.last;
    fit.history_ = results.history;
    fit.failures_ = results.failures;
    fit.restarts_ = results.restarts;
    fit.moves_ = results.moves;
    fit.ranks_ = results.ranks;
    fit.latest_ = kept.latest;
    fit.best_ = kept.best;
    fit.best_value_ = kept.best_value;
    if (folder_) take_from_folder(fit);
    return fit;
  }

  void take_from_folder(Fit& fit) const {
    fit.latest_ = folder_->latest();
    fit.best_ = folder_->best();
    fit.best_value_ = folder_->best_value();
    fit.resumed_from_ = folder_->resumed_from();
    fit.history_.clear();
    for (const Reported& report : folder_->reports()) fit.history_.push_back(report.metrics);
    if (!fit.history_.empty()) fit.last_ = fit.history_.back();
  }

  SavedModel first_start() const {
    if (observer_ != nullptr) return observer_->start();
    if (!folder_) return {};
    folder_->begin_gang();
    return folder_->latest();
  }

  /// Tells of what went wrong in the folder.
  void take_notes() {
    if (!folder_) return;
    for (std::string& note : folder_->take_notes()) {
      log_line("train: %s", note.c_str());
      core_.note(std::move(note));
    }
  }

  /// Waits for what comes next, until `until` at the latest, and tells the core all that has come.
  void wait(Time until) {
    if (ranks_.empty() && probe_) {
      wait_for_probe(until);
    } else if (ranks_.empty()) {
      std::this_thread::sleep_for(until - steady_now());
    } else {
      take(loops_.next(until));
      while (take(loops_.next({}))) {
      }
    }
    core_.time(steady_now());
  }

  void wait_for_probe(Time until) {
    const Duration left = std::max<Duration>(until - steady_now(), Duration::zero());
    if (ctx_.wait({*probe_}, {.count = 1, .timeout = left}).ready.empty()) return;
    const Ref<NodeId> probe = *std::exchange(probe_, std::nullopt);
    try {
      ctx_.get(probe);
      core_.newcomer(steady_now());
    } catch (const Infeasible&) {
      core_.no_newcomer(steady_now());
    }
  }

  bool take(const std::optional<LoopController<WorkerEvent>::Heard>& heard) {
    if (!heard) return false;
    const int gang = heard->from / kMostWorkers, rank = heard->from % kMostWorkers;
    if (heard->death) core_.died(steady_now(), gang, rank, *heard->death);
    for (const WorkerEvent& event : heard->events) {
      if (event.kind == WorkerEvent::Kind::ended) loops_.forget(heard->from);
      core_.heard(steady_now(), gang, rank, event);
      if (event.kind == WorkerEvent::Kind::saved) copy(event.saved);
    }
    return true;
  }

  /// Copies a checkpoint to this node if the node of rank 0 is another one, with which it would
  /// end. Does not wait for the copy.
  void copy(const SavedModel& saved) {
    const KeptCheckpoints& kept = core_.kept();
    std::erase_if(copies_, [&kept](const SavedModel& m) {
      return m.step != kept.latest.step && m.step != kept.best.step;
    });
    if (first_node_ == ctx_.node()) return;
    SavedModel copy = saved;
    copy.model = ctx_.with({.name = "copy of a checkpoint",
                            .cpus = 0,
                            .placement = Placement::on(ctx_.node())})
                     .submit<copied>(saved.model);
    copies_.push_back(std::move(copy));
  }

  /// Whether this process holds what the ranks need.
  bool holds() const { return reserved_ && reserved_->workers > 0 && reserved_->holds; }

  WorkerHandle& at(int rank) { return ranks_.at(static_cast<std::size_t>(rank)); }

  void kill() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      loops_.forget(number_ * kMostWorkers + static_cast<int>(rank));
      ranks_[rank].kill();
    }
    ranks_.clear();
  }

  // --- acts
  void perform(const act::AskNodes&) {
    std::vector<NodeInfo> nodes = ctx_.cluster().nodes;
    if (holds()) {
      std::erase_if(nodes, [this](const NodeInfo& node) { return node.id != ctx_.node(); });
      for (NodeInfo& node : nodes) node.draining = false;  // this process stays there, too
    }
    core_.nodes(steady_now(), std::move(nodes));
  }

  void perform(const act::Probe& what) {
    probe_ = ctx_.with({.name = "place for a gang", .cpus = what.cpus, .gpus = what.gpus})
                 .submit<here>();
  }

  void perform(const act::ChooseStart& what) {
    if (folder_) {
      folder_->begin_gang();
      take_notes();
      return core_.chosen(steady_now(), folder_->latest());
    }
    for (const SavedModel& each : what.candidates) {
      const SavedModel found = still_there(each);
      if (found) return core_.chosen(steady_now(), found);
    }
    core_.chosen(steady_now(), {});
  }

  /// Returns a checkpoint, or its copy on this node if one was made; empty when it is lost. The
  /// copy comes first: what is known of the other node may be older than its death.
  SavedModel still_there(const SavedModel& saved) const {
    const auto copy = std::find_if(copies_.begin(), copies_.end(), [&saved](const SavedModel& m) {
      return saved && m.step == saved.step;
    });
    if (copy != copies_.end()) {
      static_cast<void>(ctx_.wait(std::vector{copy->model}, {.count = 1, .timeout = kCopyWait}));
      if (is_there(*copy)) return *copy;
    }
    return is_there(saved) ? saved : SavedModel{};
  }

  bool is_there(const SavedModel& saved) const {
    using State = ObjectLocation::State;
    if (!saved) return false;
    const std::vector<Ref<Array<std::uint8_t>>> refs{saved.model};
    const State state = ctx_.locations(refs).front().state;
    return state == State::small || state == State::large;
  }

  void perform(act::Spawn& what) {
    if (what.rank == 0) {
      rendezvous_ = collective::new_rendezvous_name();
      first_node_ = what.node;
    }
    number_ = what.gang;
    WorkerSetup setup;
    setup.rank = what.rank;
    setup.world = what.world;
    setup.incarnation = what.incarnation;
    setup.verdicts = observer_ != nullptr;
    setup.metric = options_.metric;
    setup.rendezvous = rendezvous_;
    setup.generation = static_cast<std::uint64_t>(what.gang);
    setup.timeout_ns = options_.timeout.count();
    setup.layout = std::move(what.layout);
    setup.cpus = core_.plan().cpus;
    setup.gpus = core_.plan().gpus;
    setup.start = std::move(what.start);
    setup.listen = std::move(what.listen);
    setup.run = folder_ ? folder_->setup() : RunSetup{.every = options_.run.every};
    setup.may_move = core_.plan().moves;
    if (observer_ != nullptr) setup.output = observer_->output();
    ActorOptions with;
    with.cpus = setup.cpus;
    with.gpus = setup.gpus;
    if (holds()) {
      setup.cpus = reserved_->cpus;
      setup.gpus = reserved_->gpus;
      const std::string devices = Environment().text(kVisibleDevices).value_or("");
      if (setup.gpus > 0) setup.devices = gang_devices(devices, what.rank, setup.gpus);
    }
    with.placement = Placement::on(what.node);
    ranks_.push_back(spawn_(setup, with));
    loops_.follow(what.gang * kMostWorkers + what.rank, ranks_.back().take);
  }

  void perform(act::Begin& what) {
    WorkerOrder key{.kind = WorkerOrder::Kind::key};
    if (what.has_doors) {
      key.key.resize(kGangKeyBytes);
      fill_random(key.key);
    }
    WorkerOrder begin{.kind = WorkerOrder::Kind::begin};
    begin.members = std::move(what.members);
    for (WorkerHandle& rank : ranks_) {
      if (what.has_doors) rank.tell(key);
      rank.tell(begin);
    }
    wipe(key.key.data(), key.key.size());
  }

  void perform(const act::Tell& what) { at(what.rank).tell(what.order); }
  void perform(const act::Watch& what) { at(what.rank).watch(what.at); }
  void perform(const act::WantSave&) { at(0).want_save(); }
  void perform(const act::Kill&) { kill(); }
  void perform(const act::Started& what) {
    if (folder_) folder_->started(what.event);
    take_notes();
  }
  void perform(const act::EndSave& what) {
    const bool complete = folder_ && folder_->ended(what.save);
    take_notes();
    if (complete) core_.committed(steady_now(), what.gang, folder_->latest());
  }
  void perform(const act::Reported& what) {
    if (folder_) folder_->reported(what.metrics, what.value);
  }
  void perform(const act::Began& what) {
    if (observer_ != nullptr) observer_->began();
    if (options_.on_gang) options_.on_gang(what.gang);
  }
  void perform(const act::Report& what) {
    const bool go_on = observer_ == nullptr || observer_->reported(what.metrics, what.saved);
    if (what.waits) core_.judged(what.gang, go_on);
  }
  void perform(const act::Restored& what) {
    if (observer_ != nullptr) observer_->restored(what.hash);
  }
  void perform(const act::Restarted& what) {
    if (observer_ != nullptr) observer_->restarted(what.why, what.step);
  }
  void perform(const act::Finish&) {}
  [[noreturn]] void perform(const act::Fail& what) { raise(what.error); }

  Context ctx_;
  const FitOptions& options_;
  const SpawnWorker& spawn_;
  GangObserver* observer_;
  std::unique_ptr<RunFolder> folder_;  // null: checkpoints are objects
  const Reserved reserved_;
  GangCore core_;
  std::vector<WorkerHandle> ranks_;  // of the present gang
  int number_ = 0;                   // of the present gang, or the last one
  std::string rendezvous_;
  NodeId first_node_;               // of rank 0
  std::vector<SavedModel> copies_;  // on this node, of checkpoints of ranks on other nodes
  LoopController<WorkerEvent> loops_;
  std::optional<Ref<NodeId>> probe_;
};

Fit supervise(Context ctx, const FitOptions& options, const SpawnWorker& spawn,
              GangObserver* observer) {
  check(options, observer != nullptr);
  return Supervisor(ctx, options, spawn, observer).run();
}

}  // namespace internal
}  // namespace troupe::train
