#include "troupe/tune/trial.hpp"

#include "troupe/runtime/base/words.hpp"
#include "troupe/tune/detail/trial_loop.hpp"

namespace troupe::tune {

using internal::TrialMessage;
using internal::Verdict;

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
  message.can_save = static_cast<bool>(save);
  loop_->emit(std::move(message));
  for (;;) {
    const Verdict verdict = loop_->await_verdict();
    if (verdict == Verdict::stop) loop_->stopped_ = true;
    if (verdict != Verdict::save) return verdict == Verdict::go_on;
    TrialMessage saved;
    saved.kind = TrialMessage::Kind::saved;
    saved.saved = save();
    loop_->emit(std::move(saved));
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

TrialLoop::TrialLoop(TrialSetup setup) : setup_(std::move(setup)), step_(setup_.start.step) {}

void TrialLoop::run(std::function<void(Trial&)> body) {
  LoopActor::run([this, body = std::move(body)] {
    TrialMessage end;
    try {
      Trial trial(*this);
      body(trial);
    } catch (...) {
      end.error = words_of_current_exception();
    }
    emit(std::move(end));
  });
}

}  // namespace internal
}  // namespace troupe::tune
