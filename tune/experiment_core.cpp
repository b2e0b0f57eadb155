#include "troupe/tune/internal/experiment_core.hpp"

#include "troupe/tune/internal/text.hpp"

#include <algorithm>

namespace troupe::tune {
namespace {

using Kind = Event::Kind;
using Action = Decision::Action;
constexpr std::size_t history_limit = 4096;
constexpr std::size_t event_limit = 1000;

bool occupies_slot(TrialState s) {
  return s == TrialState::running || s == TrialState::holding || s == TrialState::leaving;
}

}  // namespace

bool Experiment::Core::current(const Event& e) const {
  if (e.trial < 0 || e.trial >= static_cast<int>(board.trials.size())) return false;
  const TrialInfo& t = board.trials[static_cast<std::size_t>(e.trial)];
  return occupies_slot(t.state) && t.attempt == e.attempt;
}

void Experiment::Core::record(const Event& event) {
  log.push_back(to_json(event));
  if (plain_words(event, board.space, board.metric).empty()) return;
  ++board.events_seen;
  board.events.push_back(event);
  if (board.events.size() > event_limit) board.events.pop_front();
}

/// An event of now; the caller fills it and then records it.
Event Experiment::Core::note(Kind kind, int trial) const {
  Event event;
  event.kind = kind;
  event.micros = now;
  event.trial = trial;
  return event;
}

void Experiment::Core::apply(const Event& e) {
  if (board.over || begun_ == (e.kind == Kind::begin)) return;
  const bool of_trial = e.kind == Kind::report || e.kind == Kind::save || e.kind == Kind::restore ||
                        e.kind == Kind::end;
  if (of_trial && !current(e)) return;
  if (e.kind == Kind::report && control(e.trial).in_report) return;
  const bool late = options.time_limit > Duration::zero() && !ending_ &&
                    std::chrono::microseconds(e.micros) >= options.time_limit;
  if (e.kind == Kind::tick && !late) return;
  now = e.micros;
  board.seconds = e.seconds();
  if (e.kind == Kind::begin) log.push_back(header());
  record(e);
  switch (e.kind) {
    case Kind::begin: on_begin(); break;
    case Kind::report: on_report(e); break;
    case Kind::save: on_save(e); break;
    case Kind::restore: on_restore(e); break;
    case Kind::end: on_end(e); break;
    case Kind::cancel: end_all("cancelled"); break;
    case Kind::interrupt: on_interrupt(); break;
    default: break;
  }
  if (late)
    end_all("the time limit of " +
            duration_text(std::chrono::duration<double>(options.time_limit).count()) +
            " has passed");
  schedule();
  finish_if_done();
}

void Experiment::Core::on_begin() {
  begun_ = true;
}

// --- trials come and go ---

bool Experiment::Core::may_create() const {
  return !ending_ && !space_used_up_ && static_cast<int>(board.trials.size()) < options.trials;
}

bool Experiment::Core::others_wait() const {
  return !waiting_.empty() || may_create();
}

bool Experiment::Core::create_trial() {
  const auto number = static_cast<int>(board.trials.size());
  std::optional<Point> point;
  if (next_start_ < options.starts.size()) {
    point = options.starts[next_start_++];
    searcher_->take(number, *point);
  } else {
    point = searcher_->ask(number);
  }
  if (!point) {
    space_used_up_ = true;
    return false;
  }
  TrialInfo t;
  t.number = number;
  t.params = *point;
  t.created = board.seconds;
  board.trials.push_back(std::move(t));
  controls_.emplace_back();
  scheduler_->created(number, *point);
  Event e = note(Kind::created, number);
  e.params = *point;
  record(e);
  start(number);
  return true;
}

void Experiment::Core::start(int trial) {
  TrialInfo& t = info(trial);
  Control& c = control(trial);
  t.state = TrialState::running;
  ++t.attempt;
  ++used_slots_;
  c.in_report = c.saving = c.kill_sent = c.urgent = false;
  c.restores = t.checkpoint ? t.checkpoint->hash : "";
  commands.emplace_back(Start{trial, t.attempt, t.params, t.checkpoint});
  Event e = note(Kind::started, trial);
  e.attempt = t.attempt;
  e.params = t.params;
  if (t.checkpoint) e.checkpoint = *t.checkpoint;
  record(e);
}

/// Fills the slots: retries first, then new trials, then whom the scheduler picks.
void Experiment::Core::schedule() {
  while (begun_ && !ending_ && used_slots_ < board.slots) {
    const auto urgent = std::find_if(waiting_.begin(), waiting_.end(),
                                     [this](int trial) { return control(trial).urgent; });
    if (urgent != waiting_.end()) {
      const int trial = *urgent;
      waiting_.erase(urgent);
      start(trial);
      continue;
    }
    if (may_create() && create_trial()) continue;
    if (waiting_.empty()) break;
    const int trial = scheduler_->pick(waiting_);
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), trial));
    start(trial);
  }
  make_room();
}

/// A trial that holds inside report() with its checkpoint saved hands its slot to one that waits.
void Experiment::Core::make_room() {
  if (ending_ || used_slots_ < board.slots || !others_wait()) return;
  int saved = -1;
  for (const int trial : holders_) {
    if (info(trial).state == TrialState::leaving) return;  // a slot comes free anyway
    const bool ready = info(trial).state == TrialState::holding && !control(trial).saving;
    if (saved < 0 && ready && info(trial).checkpoint) saved = trial;
  }
  if (saved >= 0) leave(saved, Next::pause, "");
}

// --- what trials say ---

void Experiment::Core::add_sample(TrialInfo& t, const Event& e) {
  t.history.push_back({e.step, e.score, e.seconds(), e.attempt});
  if (t.history.size() > history_limit) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < t.history.size(); i += 2) t.history[kept++] = t.history[i];
    if (t.history.size() % 2 == 0) t.history[kept++] = t.history.back();
    t.history.resize(kept);
  }
  t.metrics = e.metrics;
}

/// The best last score. A new record is an event.
void Experiment::Core::update_best(int trial) {
  const double score = info(trial).score();
  int& best = board.best;
  if (best == trial) {  // it may have fallen back
    for (const TrialInfo& t : board.trials) {
      if (board.goal.better(t.score(), info(best).score())) best = t.number;
    }
  } else if (best < 0 ? !std::isnan(score) : board.goal.better(score, info(best).score())) {
    best = trial;
  }
  const TrialInfo& t = info(trial);
  if (best != trial || !board.goal.better(t.score(), best_score_)) return;
  const bool first = std::isnan(best_score_);
  best_score_ = t.score();
  if (first) return;
  Event e = note(Kind::best, trial);
  e.step = t.step();
  e.score = t.score();
  record(e);
}

void Experiment::Core::on_report(const Event& e) {
  TrialInfo& t = info(e.trial);
  Control& c = control(e.trial);
  c.in_report = true;
  c.can_save = e.can_save;
  ++c.reports_since_save;
  ++board.reports;
  add_sample(t, e);
  update_best(e.trial);
  if (t.state == TrialState::leaving || ending_) {
    if (t.state != TrialState::leaving) return leave(e.trial, Next::stop, board.why_over);
    return reply(e.trial, false);
  }
  if (options.target && !board.goal.better(*options.target, e.score) && !std::isnan(e.score)) {
    leave(e.trial, Next::complete, "reached the target");
    return end_all("trial " + std::to_string(e.trial) + " reached the target " +
                   number(*options.target));
  }
  if (options.max_steps > 0 && e.step >= options.max_steps) {
    Decision decision{.trial = e.trial, .action = Action::complete};
    decision.why = "reached max_steps";
    return carry_out(decision);
  }
  decisions_.clear();
  scheduler_->reported({e.trial, e.step, e.score, e.can_save, others_wait()}, decisions_);
  const bool due = options.save_every > 0 && c.reports_since_save >= options.save_every;
  if (due && e.can_save && decisions_.front().action == Action::go_on) decisions_[0].save = true;
  const std::vector<Decision> todo = std::exchange(decisions_, {});
  for (const Decision& d : todo) carry_out(d);
}

void Experiment::Core::on_save(const Event& e) {
  Control& c = control(e.trial);
  c.saving = false;
  c.reports_since_save = 0;
  const std::vector<int> copiers = copiers_;
  for (const int trial : copiers) {
    if (control(trial).donor == e.trial) set_source(trial, e.checkpoint);
  }
  const bool copies = info(e.trial).state == TrialState::leaving && c.next == Next::restart;
  if (!copies) {
    adopt(e.trial, e.checkpoint);
  } else if (checkpoint_uses_.count(e.checkpoint.key) == 0) {
    commands.emplace_back(Drop{e.checkpoint});  // it goes on from its donor's weights
  }
}

/// The trial's next attempt starts from this checkpoint; its former one may be dropped.
void Experiment::Core::adopt(int trial, const Checkpoint& checkpoint) {
  TrialInfo& t = info(trial);
  ++checkpoint_uses_[checkpoint.key];
  if (t.checkpoint && --checkpoint_uses_[t.checkpoint->key] == 0) {
    checkpoint_uses_.erase(t.checkpoint->key);
    commands.emplace_back(Drop{*t.checkpoint});
  }
  t.checkpoint = checkpoint;
}

/// Proof of a copy: the weights that were loaded have the hash of those that were saved.
void Experiment::Core::on_restore(const Event& e) {
  Control& c = control(e.trial);
  TrialInfo& t = info(e.trial);
  if (!c.restores.empty() && !e.checkpoint.hash.empty() && c.restores != e.checkpoint.hash) {
    Event bad = note(Kind::mismatch, e.trial);
    bad.checkpoint = e.checkpoint;
    bad.text = "saved " + c.restores + ", loaded " + e.checkpoint.hash;
    record(bad);
    if (!c.kill_sent) commands.emplace_back(Kill{e.trial, e.attempt});
    c.kill_sent = true;
    return;
  }
  if (c.copying < 0) return;
  Copy& copy = t.copies[static_cast<std::size_t>(std::exchange(c.copying, -1))];
  copy.proven = !c.restores.empty() && c.restores == e.checkpoint.hash;
  Event done = note(Kind::copied, e.trial);
  done.donor = copy.donor;
  done.step = copy.own_step;
  done.checkpoint = *t.checkpoint;
  done.checkpoint.hash = copy.proven ? copy.hash : "";
  done.params = copy.params;
  done.donor_params = copy.donor_params;
  record(done);
}

void Experiment::Core::on_end(const Event& e) {
  TrialInfo& t = info(e.trial);
  Control& c = control(e.trial);
  const bool asked = t.state == TrialState::leaving;
  c.in_report = false;
  c.saving = false;
  holders_.erase(e.trial);
  --used_slots_;
  if (!e.ok && !(asked && (c.next == Next::stop || c.next == Next::complete))) {
    attempt_failed(e.trial, e.text);
  } else if (asked) {
    after_attempt(e.trial);
  } else {
    close_trial(e.trial, TrialState::completed, "its function returned");
  }
  donor_gone(e.trial);
}

void Experiment::Core::on_interrupt() {
  for (TrialInfo& t : board.trials) {
    Control& c = control(t.number);
    c.in_report = c.saving = false;
    holders_.erase(t.number);
    if (occupies_slot(t.state)) {
      const bool ends =
          t.state == TrialState::leaving && (c.next == Next::complete || c.next == Next::stop);
      if (ends) {
        after_attempt(t.number);
        continue;
      }
      t.state = TrialState::waiting;
      c.urgent = true;
      waiting_.push_back(t.number);
    }
  }
  used_slots_ = 0;
  for (const TrialInfo& t : board.trials) donor_gone(t.number);
}

// --- decisions ---

void Experiment::Core::carry_out(const Decision& d) {
  TrialInfo& t = info(d.trial);
  const bool inside = control(d.trial).in_report;
  switch (d.action) {
    case Action::go_on:
      if (d.save) ask_to_save(d.trial);
      return reply(d.trial, true);
    case Action::stop:
      if (inside) return leave(d.trial, Next::stop, d.why);
      waiting_.erase(std::remove(waiting_.begin(), waiting_.end(), d.trial), waiting_.end());
      return close_trial(d.trial, TrialState::stopped, d.why);
    case Action::complete:
      if (options.save_at_end && control(d.trial).can_save) ask_to_save(d.trial);
      return leave(d.trial, Next::complete, d.why);
    case Action::yield:
      ask_to_save(d.trial);
      record(note(Kind::yielded, d.trial));
      return leave(d.trial, Next::wait, "");
    case Action::hold:
      if (d.save) ask_to_save(d.trial);
      t.state = TrialState::holding;
      holders_.insert(d.trial);
      record(note(Kind::held, d.trial));
      return;
    case Action::resume:
      record(note(Kind::resumed, d.trial));
      if (t.state == TrialState::holding) {
        holders_.erase(d.trial);
        t.state = TrialState::running;
        return reply(d.trial, true);
      }
      if (t.state == TrialState::leaving) {
        control(d.trial).next = Next::wait;
      } else if (t.state == TrialState::paused) {
        t.state = TrialState::waiting;
        waiting_.push_back(d.trial);
      }
      return;
    case Action::exploit: return do_exploit(d);
  }
}

void Experiment::Core::do_exploit(const Decision& d) {
  TrialInfo& t = info(d.trial);
  Control& c = control(d.trial);
  const TrialInfo& donor = info(d.donor);
  Event e = note(Kind::exploit, d.trial);
  e.donor = d.donor;
  e.step = t.step();
  e.params = d.params;
  e.donor_params = d.donor_params;
  e.text = d.why;
  if (donor.checkpoint) e.checkpoint = *donor.checkpoint;
  record(e);
  t.params = d.params;
  t.copies.push_back({d.donor, t.step(), 0, board.seconds, "", false, d.donor_params, d.params});
  c.copying = static_cast<int>(t.copies.size()) - 1;
  c.donor = d.donor;
  copiers_.push_back(d.trial);
  if (t.state == TrialState::running || t.state == TrialState::holding) {
    leave(d.trial, Next::restart, "");
  } else if (t.state == TrialState::leaving) {
    c.next = Next::restart;
  }
  const bool coming = control(d.donor).saving;
  if (!coming && donor.checkpoint) set_source(d.trial, *donor.checkpoint);
  if (!coming && !donor.checkpoint) donor_gone(d.donor);
}

/// The donor's checkpoint is there: the copier's next attempt starts from it.
void Experiment::Core::set_source(int trial, const Checkpoint& source) {
  TrialInfo& t = info(trial);
  adopt(trial, source);  // a retry starts from here too
  t.copies.back().hash = source.hash;
  t.copies.back().donor_step = source.step;
  stop_waiting_for_donor(trial);
}

void Experiment::Core::stop_waiting_for_donor(int trial) {
  TrialInfo& t = info(trial);
  control(trial).donor = -1;
  copiers_.erase(std::remove(copiers_.begin(), copiers_.end(), trial), copiers_.end());
  if (t.state == TrialState::paused) {
    t.state = TrialState::waiting;
    waiting_.push_back(trial);
  }
}

/// The donor ended before its save arrived: who waits for it takes an older one, or its own.
void Experiment::Core::donor_gone(int donor) {
  if (control(donor).saving) return;
  const std::vector<int> copiers = copiers_;
  for (const int trial : copiers) {
    Control& c = control(trial);
    if (c.donor != donor) continue;
    if (info(donor).checkpoint) {
      set_source(trial, *info(donor).checkpoint);
      continue;
    }
    c.copying = -1;
    info(trial).copies.pop_back();
    stop_waiting_for_donor(trial);
  }
}

void Experiment::Core::ask_to_save(int trial) {
  control(trial).saving = true;
  commands.emplace_back(Save{trial, info(trial).attempt});
}

void Experiment::Core::reply(int trial, bool go_on) {
  control(trial).in_report = false;
  commands.emplace_back(Reply{trial, info(trial).attempt, go_on});
}

void Experiment::Core::leave(int trial, Next next, std::string why) {
  Control& c = control(trial);
  info(trial).state = TrialState::leaving;
  c.next = next;
  c.why = std::move(why);
  if (c.in_report) reply(trial, false);
}

void Experiment::Core::after_attempt(int trial) {
  TrialInfo& t = info(trial);
  Control& c = control(trial);
  switch (c.next) {
    case Next::complete: return close_trial(trial, TrialState::completed, c.why);
    case Next::stop: return close_trial(trial, TrialState::stopped, c.why);
    case Next::pause:
      t.state = TrialState::paused;
      record(note(Kind::paused, trial));
      return;
    case Next::restart:
    case Next::wait: break;
  }
  if (ending_) return close_trial(trial, TrialState::stopped, board.why_over);
  const bool donor_saves = c.donor >= 0;
  t.state = donor_saves ? TrialState::paused : TrialState::waiting;
  if (!donor_saves) waiting_.push_back(trial);
}

void Experiment::Core::attempt_failed(int trial, const std::string& error) {
  TrialInfo& t = info(trial);
  Control& c = control(trial);
  ++t.failures;
  const bool again = !ending_ && (options.max_failures < 0 || t.failures <= options.max_failures);
  if (!again) {
    close_trial(trial, TrialState::failed, error);
    if (options.fail_fast) end_all("trial " + std::to_string(trial) + " failed");
    return;
  }
  Event e = note(Kind::retry, trial);
  e.attempt = t.attempt;
  e.step = t.checkpoint ? t.checkpoint->step : 0;
  e.text = error;
  record(e);
  if (t.state == TrialState::leaving && c.next == Next::pause) {
    t.state = TrialState::paused;
    return;
  }
  const bool donor_saves = c.donor >= 0;
  t.state = donor_saves ? TrialState::paused : TrialState::waiting;
  c.urgent = true;
  if (!donor_saves) waiting_.push_back(trial);
}

void Experiment::Core::close_trial(int trial, TrialState state, const std::string& why) {
  TrialInfo& t = info(trial);
  t.state = state;
  t.note = why;
  Event e = note(state == TrialState::failed      ? Kind::failed
                 : state == TrialState::completed ? Kind::completed
                                                  : Kind::stopped,
                 trial);
  e.step = t.step();
  e.score = t.score();
  e.text = why;
  record(e);
  searcher_->tell({trial,
                   state == TrialState::failed      ? Ended::State::failed
                   : state == TrialState::completed ? Ended::State::complete
                                                    : Ended::State::pruned,
                   t.score(), t.step()});
  std::vector<Decision> out;
  if (state == TrialState::failed) {
    scheduler_->failed(trial, out);
  } else {
    scheduler_->finished(trial, out);
  }
  if (ending_) return;
  for (const Decision& d : out) carry_out(d);
}

// --- the end ---

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
  board.over = true;
  if (board.why_over.empty()) board.why_over = "all trials are done";
  Event e = note(Kind::over);
  e.text = board.why_over;
  record(e);
  commands.emplace_back(Finished{board.why_over});
}

}  // namespace troupe::tune
