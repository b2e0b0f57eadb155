#include "troupe/tune/internal/experiment_core.hpp"

#include <algorithm>

namespace troupe::tune {
namespace {

using Kind = Event::Kind;

// Pauses before a retry, in microseconds.
constexpr std::int64_t kFirstPause = 100'000;
constexpr std::int64_t kLongestPause = 30'000'000;
constexpr std::int64_t kLongestByChance = 1'000'000;
constexpr std::size_t kRetryLimit = 200;
constexpr std::size_t kPauseLimit = 1000;
constexpr int kAlikeLimit = 3;  ///< equal failures in a row that make a `repeated` event

/// Returns how long a retry waits after so many attempts in a row that came no further than those
/// before them. The pause doubles each time. Its limit is lower if the last attempt reported, since
/// such an attempt may have failed by chance.
std::int64_t pause_after(int fruitless, bool reported) {
  if (fruitless == 0) return 0;
  return std::min(kFirstPause << std::min(fruitless - 1, 20),
                  reported ? kLongestByChance : kLongestPause);
}

}  // namespace

bool Experiment::Core::may_create() const {
  return !ending_ && !space_used_up_ && board.created() < options.trials;
}

/// Returns how many attempts may run at a time: the slots, or fewer if the cluster holds fewer.
int Experiment::Core::places() const {
  return std::min(board.slots, board.room.value_or(board.slots));
}

bool Experiment::Core::others_wait() const {
  if (!board.paused && may_create()) return true;
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [this](int trial) { return !waits_for_user(info(trial)); });
}

std::optional<Point> Experiment::Core::next_point() const {
  if (!added_.empty()) return added_.front();
  if (next_start_ < options.starts.size()) return options.starts[next_start_];
  return answers_.suggestion(board.created());
}

bool Experiment::Core::create_trial() {
  const int number = board.created();
  const Point* first = next_start_ < options.starts.size() ? &options.starts[next_start_] : nullptr;
  const bool added = !added_.empty();
  const auto [point, by] = answers_.point(number, added ? &added_.front() : first);
  if (!point) {
    space_used_up_ = true;
    for (const Decision& d : answers_.population(number)) carry_out(d);
    return false;
  }
  if (added) {
    added_.pop_front();
  } else if (by == Chosen::by_user) {
    ++next_start_;
  }
  TrialInfo t;
  t.number = number;
  t.params = *point;
  t.created = board.seconds;
  board.trials.push_back(std::move(t));
  controls_.emplace_back();
  controls_.back().first_params = *point;
  answers_.created(number, *point);
  Event e = note(Kind::created, number);
  e.params = *point;
  record(e);
  start(number);
  return true;
}

void Experiment::Core::start(int trial) {
  TrialInfo& t = info(trial);
  Control& c = control(trial);
  if (durable) back_to_row(trial);
  if (!t.pauses.empty() && t.pauses.back().to < 0) t.pauses.back().to = board.seconds;
  t.state = TrialState::running;
  ++t.attempt;
  ++used_slots_;
  c.saving_due = c.reply_due = false;
  c.in_report = c.saving = c.kill_sent = c.urgent = c.told = c.overdue = false;
  c.last_step = 0;
  c.advanced = false;
  if (c.copy_ready) c.furthest = 0;  // the trial goes on from the donor's step, not its own
  c.restores = t.checkpoint ? t.checkpoint->hash : "";
  if (std::exchange(c.copy_ready, false)) c.copying = static_cast<int>(t.copies.size()) - 1;
  commands.emplace_back(Start{trial, t.attempt, t.params, t.checkpoint});
  Event e = note(Kind::started, trial);
  e.attempt = t.attempt;
  e.params = t.params;
  if (t.checkpoint) e.checkpoint = *t.checkpoint;
  record(e);
}

/// Fills the free slots: retries first, then new trials, then the waiting trials that the scheduler
/// picks. A retry whose pause is not over waits for its timer.
void Experiment::Core::schedule() {
  while (begun_ && !ending_ && used_slots_ < places()) {
    std::vector<int> ready;
    int trial = -1;
    for (const int w : waiting_) {
      if (control(w).retry_at > now || waits_for_user(info(w))) continue;
      ready.push_back(w);
      if (trial < 0 && control(w).urgent) trial = w;
    }
    if (trial < 0 && !board.paused && may_create()) {
      create_trial();
      continue;  // if no point was left, the scheduler's decisions may have made others ready
    }
    if (trial < 0 && ready.empty()) break;
    if (trial < 0) trial = answers_.next(ready);
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), trial));
    start(trial);
  }
  make_room();
  pause_holders();
}

/// Trials that the user has paused keep no slot while they hold for the scheduler.
void Experiment::Core::pause_holders() {
  if (ending_) return;
  const std::set<int> holders = holders_;
  for (const int trial : holders) {
    const TrialInfo& t = info(trial);
    if (t.state == TrialState::holding && t.checkpoint && t.checkpoint->step == t.step() &&
        waits_for_user(t) && !control(trial).saving)
      leave(trial, Next::pause, "");
  }
}

/// If no slot is free and a trial waits for one, pauses one trial that holds inside report() and
/// has a checkpoint. Its slot then goes to the waiting trial.
void Experiment::Core::make_room() {
  if (ending_ || used_slots_ < places() || !others_wait()) return;
  int saved = -1;
  for (const int trial : holders_) {
    if (info(trial).state == TrialState::leaving) return;  // a slot becomes free anyway
    const bool ready = info(trial).state == TrialState::holding && !control(trial).saving;
    if (saved < 0 && ready && info(trial).checkpoint) saved = trial;
  }
  if (saved >= 0) leave(saved, Next::pause, "");
}

void Experiment::Core::after_attempt(int trial) {
  TrialInfo& t = info(trial);
  Control& c = control(trial);
  switch (c.next) {
    case Next::complete: return close_trial(trial, TrialState::completed, c.why);
    case Next::stop: return close_trial(trial, TrialState::stopped, c.why);
    case Next::pause:
      if (ending_) break;  // no decision will resume it
      t.state = TrialState::paused;
      record(note(Kind::paused, trial));
      pause(trial);
      trim(trial);
      return;
    case Next::restart:
    case Next::wait: break;
  }
  if (ending_) return close_trial(trial, TrialState::stopped, board.why_over);
  pause(trial);
  const bool donor_saves = c.donor >= 0;
  t.state = donor_saves ? TrialState::paused : TrialState::waiting;
  if (!donor_saves) waiting_.push_back(trial);
}

void Experiment::Core::attempt_failed(int trial, const std::string& error) {
  TrialInfo& t = info(trial);
  Control& c = control(trial);
  ++t.failures;
  c.losses = 0;
  const bool again = !ending_ && (options.max_failures < 0 || t.failures <= options.max_failures);
  if (!again) return failed_for_good(trial, error);
  if (t.retries.size() < kRetryLimit) t.retries.push_back(board.seconds);
  Event e = note(Kind::retry, trial);
  e.attempt = t.attempt;
  e.step = t.checkpoint ? t.checkpoint->step : 0;
  e.text = error;
  record(e);
  if (!c.advanced) {
    ++c.fruitless;
    c.alike = error == c.last_error ? c.alike + 1 : 1;
    c.last_error = error;
  }
  if (c.alike == kAlikeLimit && !c.advanced) {
    Event same = note(Kind::repeated, trial);
    same.text = "failed " + std::to_string(c.alike) + " times in a row " +
                (c.last_step == 0 ? "before its first report" : "without getting further") +
                ", each time with: " + error;
    record(same);
  }
  c.retry_at = now + pause_after(c.fruitless, c.last_step > 0);
  // The timer is set for a trial that is paused below, too: it may be resumed before retry_at.
  if (c.retry_at > now) timers_.emplace(c.retry_at, trial);
  if (t.state == TrialState::leaving && c.next == Next::pause) {
    t.state = TrialState::paused;
    return;
  }
  queue_again(trial);
}

/// Notes for the views that the trial has no process from now on.
void Experiment::Core::pause(int trial) {
  TrialInfo& t = info(trial);
  if (t.pauses.size() < kPauseLimit) t.pauses.push_back({board.seconds, -1});
}

/// Queues a trial for its next attempt, before new trials. A trial that copies another one waits
/// for its donor's save first.
void Experiment::Core::queue_again(int trial) {
  const bool donor_saves = control(trial).donor >= 0;
  info(trial).state = donor_saves ? TrialState::paused : TrialState::waiting;
  control(trial).urgent = true;
  if (!donor_saves) waiting_.push_back(trial);
}

void Experiment::Core::failed_for_good(int trial, const std::string& error) {
  close_trial(trial, TrialState::failed, error);
  if (options.fail_fast) end_all("trial " + std::to_string(trial) + " failed");
}

void Experiment::Core::close_trial(int trial, TrialState state, const std::string& why) {
  TrialInfo& t = info(trial);
  t.state = state;
  t.paused_by_user = false;
  t.note = why;
  latest_over_.push_back(trial);
  if (latest_over_.size() > kLatestOver) latest_over_.pop_front();
  Event e = note(state == TrialState::failed      ? Kind::failed
                 : state == TrialState::completed ? Kind::completed
                                                  : Kind::stopped,
                 trial);
  e.step = t.step();
  e.score = t.score();
  e.text = why;
  record(e);
  forget_copy(trial);
  donor_gone(trial);  // before the release below: trials that copy it still need its checkpoint
  release_all(trial, options.save_at_end && state == TrialState::completed);
  const bool failed = state == TrialState::failed;
  const Ended outcome{trial,
                      failed                           ? Ended::State::failed
                      : state == TrialState::completed ? Ended::State::complete
                                                       : Ended::State::pruned,
                      t.score(), t.step()};
  const std::vector<Decision> out = answers_.over({trial, failed}, outcome);
  if (ending_) return;
  for (const Decision& d : out) carry_out(d);
}

// --- the end ---

/// Begins to end the experiment. Trials without a process close at once, and trials inside report()
/// are told to return. All others are killed, if a save is in progress only after it (on_save()).
void Experiment::Core::end_all(const std::string& why) {
  if (ending_) return;
  ending_ = true;
  board.why_over = why;
  waiting_.clear();
  for (TrialInfo& t : board.trials) {
    Control& c = control(t.number);
    if (is_over(t.state)) continue;
    if (!occupies_slot(t.state)) {
      close_trial(t.number, TrialState::stopped, why);
    } else if (c.in_report) {
      leave(t.number, Next::stop, why);
    } else if (t.state != TrialState::leaving) {
      leave(t.number, Next::stop, why);
      if (c.saving) continue;
      if (!c.kill_sent) commands.emplace_back(Kill{t.number, t.attempt});
      c.kill_sent = true;
    }
  }
}

void Experiment::Core::finish_if_done() {
  if (!begun_ || board.over || used_slots_ > 0 || !waiting_.empty() || may_create()) return;
  for (const TrialInfo& t : board.trials) {
    if (!is_over(t.state)) return;
  }
  if (durable && board.best_report && board.best_report->checkpoint &&
      !is_stored(*board.best_report->checkpoint))
    return;  // stored() or missing() comes
  board.over = true;
  if (board.why_over.empty()) board.why_over = "all trials are done";
  Event e = note(Kind::over);
  e.text = board.why_over;
  record(e);
  commands.emplace_back(Finished{board.why_over});
}

}  // namespace troupe::tune
