#include "troupe/tune/trial.hpp"

#include "troupe/runtime/base/words.hpp"
#include "troupe/tune/detail/trial_host.hpp"

namespace troupe::tune {

using internal::TrialMessage;
using internal::Verdict;

int Trial::number() const noexcept {
  return host_->setup_.number;
}
int Trial::attempt() const noexcept {
  return host_->setup_.attempt;
}
long Trial::step() const noexcept {
  return host_->step_;
}
Context Trial::context() const {
  return Context(troupe::detail::running_engine());
}
const train::SavedModel& Trial::start() const noexcept {
  return host_->setup_.start;
}

void Trial::restored(std::uint64_t hash) {
  TrialMessage message;
  message.kind = TrialMessage::Kind::restored;
  message.hash = hash;
  host_->push(std::move(message));
}

void Trial::note(const std::string& what) {
  TrialMessage message;
  message.kind = TrialMessage::Kind::noted;
  message.error = what;
  host_->push(std::move(message));
}

bool Trial::report(const train::Metrics& metrics, const std::function<train::SavedModel()>& save) {
  if (host_->stopped_) return false;  // said already: nothing that follows counts
  if (metrics.step < 1 || (host_->reported_ && metrics.step <= host_->step_))
    throw InvalidArgument(Code::invalid_argument,
                          "tune: report() of step " + std::to_string(metrics.step) +
                              " after step " + std::to_string(host_->reported_ ? host_->step_ : 0) +
                              ": steps start at 1 and rise");
  host_->reported_ = true;
  host_->step_ = metrics.step;
  TrialMessage message;
  message.kind = TrialMessage::Kind::reported;
  message.metrics = metrics;
  message.can_save = static_cast<bool>(save);
  host_->push(std::move(message));
  for (;;) {
    const Verdict verdict = host_->await_verdict();
    if (verdict == Verdict::stop) host_->stopped_ = true;
    if (verdict != Verdict::save) return verdict == Verdict::go_on;
    TrialMessage saved;
    saved.kind = TrialMessage::Kind::saved;
    saved.saved = save();
    host_->push(std::move(saved));
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

TrialHost::TrialHost(TrialSetup setup) : setup_(std::move(setup)), step_(setup_.start.step) {}

TrialHost::~TrialHost() {
  reply(Verdict::stop);
  if (thread_.joinable()) thread_.join();
}

void TrialHost::run(std::function<void(Trial&)> body) {
  thread_ = std::thread([this, body = std::move(body)] {
    TrialMessage end;
    try {
      Trial trial(*this);
      body(trial);
    } catch (...) {
      end.error = words_of_current_exception();
    }
    push(std::move(end));
  });
}

void TrialHost::push(TrialMessage message) {
  {
    const std::lock_guard lock(mutex_);
    messages_.push_back(std::move(message));
  }
  changed_.notify_all();
}

Verdict TrialHost::await_verdict() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !verdicts_.empty(); });
  const Verdict verdict = verdicts_.front();
  verdicts_.pop_front();
  return verdict;
}

std::vector<TrialMessage> TrialHost::take(int wait_ms) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::milliseconds(wait_ms),
                    [this] { return !messages_.empty(); });
  std::vector<TrialMessage> messages(std::make_move_iterator(messages_.begin()),
                                     std::make_move_iterator(messages_.end()));
  messages_.clear();
  return messages;
}

void TrialHost::reply(Verdict verdict) {
  {
    const std::lock_guard lock(mutex_);
    verdicts_.push_back(verdict);
  }
  changed_.notify_all();
}

}  // namespace internal
}  // namespace troupe::tune
