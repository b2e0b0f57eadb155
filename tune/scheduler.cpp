#include "troupe/tune/scheduler.hpp"

#include "troupe/tune/internal/schedulers.hpp"
#include "troupe/tune/internal/text.hpp"

namespace troupe::tune {
namespace {

class FifoScheduler final : public Scheduler {
 public:
  void observe(const Report&) override {}
  void decide(const Report& report, std::vector<Decision>& out) const override {
    out.push_back({.trial = report.trial});
  }
};

std::unique_ptr<Scheduler> make(const Fifo&, const SchedulerSetup&) {
  return std::make_unique<FifoScheduler>();
}
std::unique_ptr<Scheduler> make(const Pbt& o, const SchedulerSetup& s) {
  return std::make_unique<PbtScheduler>(o, s);
}
std::unique_ptr<Scheduler> make(const AsyncHyperBand& o, const SchedulerSetup& s) {
  return std::make_unique<AsyncHyperBandScheduler>(o, s);
}
std::unique_ptr<Scheduler> make(const SuccessiveHalving& o, const SchedulerSetup& s) {
  return std::make_unique<SuccessiveHalvingScheduler>(o, s);
}
std::unique_ptr<Scheduler> make(const MedianStopping& o, const SchedulerSetup& s) {
  return std::make_unique<MedianScheduler>(o, s);
}
std::unique_ptr<Scheduler> make(const PercentileStopping& o, const SchedulerSetup& s) {
  return std::make_unique<PercentileScheduler>(o, s);
}
std::unique_ptr<Scheduler> make(const Patience& o, const SchedulerSetup& s) {
  return std::make_unique<PatienceScheduler>(o, s);
}

std::string text(const Fifo&) {
  return "fifo";
}
std::string text(const Pbt& o) {
  return std::string(o.synchronous ? "synchronous " : "") + "pbt(perturb_every " +
         number(static_cast<double>(o.perturb_every)) + ", burn_in " +
         number(static_cast<double>(o.burn_in)) + ", quantile " + number(o.quantile) +
         ", resample " + number(o.resample) + ", factors " + number(o.grow) + " and " +
         number(o.shrink) + (o.clamp ? "" : ", unclamped") +
         (o.save_all ? "" : ", only the top saves") + ")";
}
std::string text(const AsyncHyperBand& o) {
  return "async_hyperband(max_steps " +
         (o.max_steps ? std::to_string(*o.max_steps) : std::string("of the experiment")) +
         ", grace " + std::to_string(o.grace) + ", eta " + number(o.eta) + ", brackets " +
         std::to_string(o.brackets) + (o.stop_at_max ? "" : ", last trials go on") + ")";
}
std::string text(const SuccessiveHalving& o) {
  return "successive_halving(min_steps " + std::to_string(o.min_steps) + ", eta " +
         std::to_string(o.eta) + ", rate " + std::to_string(o.rate) + ", bootstrap " +
         std::to_string(o.bootstrap) + ")";
}
std::string text(const MedianStopping& o) {
  return "median_stopping(grace " + std::to_string(o.grace) + ", min_samples " +
         std::to_string(o.min_samples) + ")";
}
std::string text(const PercentileStopping& o) {
  return "percentile_stopping(percentile " + number(o.percentile) + ", startup_trials " +
         std::to_string(o.startup_trials) + ", warmup " + std::to_string(o.warmup) + ")";
}
std::string text(const Patience& o) {
  return "patience(" + std::to_string(o.patience) + ", min_delta " + number(o.min_delta) + ")";
}

}  // namespace

Scheduler::~Scheduler() = default;
void Scheduler::created(int, const Point&) {}
void Scheduler::observe(const TrialOver&) {}
void Scheduler::observe_population(int) {}
void Scheduler::decide_holds(std::vector<Decision>&) const {}
void Scheduler::decided(const std::vector<Decision>&) {}
void Scheduler::kept(int, const Point&, long) {}
int Scheduler::pick(const std::vector<int>& waiting) const {
  return waiting.front();
}

namespace {
void settle(Scheduler& scheduler, std::vector<Decision> decisions, std::vector<Decision>& out) {
  scheduler.decided(decisions);
  for (Decision& d : decisions) out.push_back(std::move(d));
}
void settle_holds(Scheduler& scheduler, std::vector<Decision>& out) {
  std::vector<Decision> decisions;
  scheduler.decide_holds(decisions);
  settle(scheduler, std::move(decisions), out);
}
}  // namespace

void Scheduler::reported(const Report& report, std::vector<Decision>& out) {
  observe(report);
  std::vector<Decision> decisions;
  decide(report, decisions);
  settle(*this, std::move(decisions), out);
}
void Scheduler::finished(int trial, std::vector<Decision>& out) {
  observe(TrialOver{trial, false});
  settle_holds(*this, out);
}
void Scheduler::failed(int trial, std::vector<Decision>& out) {
  observe(TrialOver{trial, true});
  settle_holds(*this, out);
}
void Scheduler::population(int trials, std::vector<Decision>& out) {
  observe_population(trials);
  settle_holds(*this, out);
}

std::unique_ptr<Scheduler> make_scheduler(const AnyScheduler& settings,
                                          const SchedulerSetup& setup) {
  return std::visit([&](const auto& options) { return make(options, setup); }, settings);
}

std::string show(const AnyScheduler& settings) {
  return std::visit([](const auto& options) { return text(options); }, settings);
}

}  // namespace troupe::tune
