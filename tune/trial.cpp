#include "troupe/tune/trial.hpp"

#include "troupe/actors/loop_actor/loop_output.hpp"
#include "troupe/runtime/base/words.hpp"
#include "troupe/tune/detail/trial_loop.hpp"
#include "troupe/tune/internal/process_state.hpp"

#include <unistd.h>
#include <algorithm>
#include <cstdio>

namespace troupe::tune {

using internal::TrialMessage;
using internal::Verdict;

namespace {
constexpr Duration kCopyTimePerByte = std::chrono::nanoseconds(10);

/// A model of another step would be stored as the one of this report.
void check_step(const train::SavedModel& saved, long step) {
  if (!saved || saved.step == step) return;
  throw InvalidArgument(Code::invalid_argument,
                        "tune: the report of step " + std::to_string(step) +
                            " came with a model of step " + std::to_string(saved.step) +
                            ": save it in the report's function, with "
                            "train::save_model(t.context(), t.step(), model)");
}
}  // namespace

int Trial::number() const noexcept {
  return loop_->setup_.number;
}
int Trial::attempt() const noexcept {
  return loop_->setup_.attempt;
}
long Trial::step() const noexcept {
  return loop_->step_;
}
Context Trial::context() const {
  return Context::current();
}
const train::SavedModel& Trial::start() const noexcept {
  return loop_->setup_.start;
}

void Trial::restored(std::uint64_t hash) {
  TrialMessage message;
  message.kind = TrialMessage::Kind::restored;
  message.hash = hash;
  loop_->emit(std::move(message));
}

void Trial::note(const std::string& what) {
  TrialMessage message;
  message.kind = TrialMessage::Kind::noted;
  message.error = what;
  loop_->emit(std::move(message));
}

bool Trial::report(const train::Metrics& metrics, const std::function<train::SavedModel()>& save) {
  const std::string& name = loop_->setup_.metric;
  if (name == "score" || name == "loss") return report(metrics, metrics.loss, save);
  const auto found = metrics.extra.find(name);
  if (found != metrics.extra.end()) {
    train::Metrics all = metrics;
    if (metrics.loss != 0) all.extra.emplace("loss", metrics.loss);
    return report(all, found->second, save);
  }
  std::string names = "loss";
  for (const auto& [each, value] : metrics.extra) names += ", " + each;
  throw InvalidArgument(Code::invalid_argument,
                        "tune: the report of step " + std::to_string(metrics.step) +
                            " has no metric '" + name + "', which Options::metric names; it has " +
                            names + ": report it in Metrics::extra, or name one of these");
}

bool Trial::report(const train::Metrics& metrics, double score,
                   const std::function<train::SavedModel()>& save) {
  if (loop_->stopped_) return false;  // the attempt was told to return; its reports no longer count
  if (metrics.step < 1 || (loop_->reported_ && metrics.step <= loop_->step_))
    throw InvalidArgument(Code::invalid_argument,
                          "tune: report() of step " + std::to_string(metrics.step) +
                              " after step " + std::to_string(loop_->reported_ ? loop_->step_ : 0) +
                              ": steps start at 1 and rise");
  loop_->reported_ = true;
  loop_->step_ = metrics.step;
  TrialMessage message;
  message.kind = TrialMessage::Kind::reported;
  message.metrics = metrics;
  message.score = score;
  message.can_save = static_cast<bool>(save);
  loop_->emit(std::move(message));
  for (;;) {
    const Verdict verdict = loop_->await_verdict();
    if (verdict == Verdict::stop) loop_->stopped_ = true;
    if (verdict != Verdict::save) return verdict == Verdict::go_on;
    TrialMessage saved;
    saved.kind = TrialMessage::Kind::saved;
    saved.saved = save();
    check_step(saved.saved, metrics.step);
    if (loop_->setup_.replicate) replicate(saved.saved);
    loop_->emit(std::move(saved));
  }
}

/// Puts the model of a checkpoint on a second node as well, so that it outlives this one. When no
/// other node takes it, the checkpoint stays as it is, and a note says why.
void Trial::replicate(train::SavedModel& saved) {
  if (!saved.folder.empty()) return;
  try {
    const auto model = context().view(saved.model);
    auto copy = context().create<std::uint8_t>(model->size());
    std::copy(model->begin(), model->end(), copy.begin());
    // A node that has just died keeps a copy from being made until the time is over.
    const Duration within =
        std::chrono::seconds(5) + kCopyTimePerByte * static_cast<std::int64_t>(model->size());
    saved.model = std::move(copy).seal({.replicas = 2, .timeout = within});
  } catch (const Error& error) {
    note("the checkpoint of step " + std::to_string(saved.step) +
         " is on one node alone: " + error.message());
  }
}

namespace internal {

bool TrialObserver::reported(const train::Metrics& metrics, const train::SavedModel& saved) {
  if (!saved) return trial_.report(metrics, {});
  return trial_.report(metrics, [&saved] { return saved; });
}

void TrialObserver::restarted(const std::string& why, long step) {
  trial_.note(why + "; its gang goes on from step " + std::to_string(step));
}

void TrialObserver::began() {
  TrialMessage message;
  message.kind = TrialMessage::Kind::gathered;
  trial_.loop_->emit(std::move(message));
}

std::optional<train::GangReservation> TrialObserver::reserved() const {
  const TrialSetup& setup = trial_.loop_->setup_;
  return train::GangReservation{setup.workers, setup.cpus, setup.gpus, setup.holds};
}

/// Ranks print beside the trial, whose lines go on after the last of a rank.
loops::OutputPlace TrialObserver::output() const {
  loops::OutputPlace place = trial_.loop_->setup_.output;
  place.ends = place.begins;
  return place;
}

TrialLoop::TrialLoop() {
  run([this] { serve(); });
}

/// Runs attempt after attempt until the actor ends.
void TrialLoop::serve() {
  const ProcessState before;
  TrialMessage ready;
  ready.kind = TrialMessage::Kind::ready;
  ready.node = Context::current().node();
  ready.pid = ::getpid();
  emit(std::move(ready));
  while (std::optional<TrialOrder> order = next()) {
    if (!order->body) continue;  // a verdict for an attempt that has ended
    setup_ = std::move(order->setup);
    step_ = setup_.start.step;
    reported_ = stopped_ = false;
    TrialMessage end;
    try {
      const loops::LoopOutput output(setup_.output);
      Trial trial(*this);
      order->body(trial);
    } catch (...) {
      end.error = words_of_current_exception();
    }
    order.reset();  // the function's arguments end before the attempt does
    std::fflush(nullptr);
    end.reusable = before.restore() && end.error.empty() && !has_child();
    emit(std::move(end));
  }
}

/// Returns the next verdict for the present attempt.
Verdict TrialLoop::await_verdict() {
  const std::optional<TrialOrder> order = next();
  return order ? order->verdict : Verdict::stop;
}

}  // namespace internal
}  // namespace troupe::tune
