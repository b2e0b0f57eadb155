#include "troupe/tune/internal/experiment_core.hpp"
#include "troupe/tune/internal/text.hpp"

#include <algorithm>

namespace troupe::tune {
namespace {

using Kind = Event::Kind;
using Action = Decision::Action;
constexpr std::size_t kHistoryLimit = 4096;
constexpr std::size_t kEventLimit = 1000;
constexpr int kLossLimit = 3;  ///< losses in a row without a further step that make a failure

}  // namespace

bool Experiment::Core::current(const Event& e) const {
  const TrialInfo* t = board.find(e.trial);
  return t != nullptr && occupies_slot(t->state) && t->attempt == e.attempt;
}

void Experiment::Core::record(const Event& event) {
  if (keeps_rows() && event.trial >= 0) touched_.insert(event.trial);
  if (keep_log) log.push_back(event);
  if (!has_words(event.kind)) return;
  ++board.events_seen;
  board.events.push_back(event);
  if (board.events.size() > kEventLimit) board.events.pop_front();
}

/// Makes an event with the present time; the caller fills it and then records it.
Event Experiment::Core::note(Kind kind, int trial) const {
  Event event;
  event.kind = kind;
  event.micros = now;
  event.wall = wall_now_;
  event.trial = trial;
  return event;
}

bool Experiment::Core::late(const Event& e) const {
  return options.time_limit > Duration::zero() && !ending_ &&
         std::chrono::microseconds(e.micros) >= options.time_limit;
}

// --- timers ---

bool Experiment::Core::timer_valid(std::int64_t at, int trial) const {
  if (!has(trial)) return false;
  const Control& c = control(trial);
  const TrialState state = info(trial).state;
  if (state == TrialState::leaving) return !c.overdue && c.kill_at == at;
  return state == TrialState::waiting && c.retry_at == at;
}

/// Whether a valid timer is due at this time. Removes due timers whose cause is gone.
bool Experiment::Core::timer_due(std::int64_t micros) {
  while (!timers_.empty() && timers_.begin()->first <= micros) {
    if (timer_valid(timers_.begin()->first, timers_.begin()->second)) return true;
    timers_.erase(timers_.begin());
  }
  return false;
}

std::optional<std::int64_t> Experiment::Core::next_tick() const {
  std::optional<std::int64_t> at;
  for (const auto& [when, trial] : timers_) {
    if (!timer_valid(when, trial)) continue;
    at = when;
    break;
  }
  if (options.time_limit > Duration::zero() && begun_ && !ending_) {
    const auto limit = std::chrono::ceil<std::chrono::microseconds>(options.time_limit).count();
    if (limit < kNever) at = std::min(at.value_or(limit), limit);
  }
  return at;
}

/// Kills attempts that were told to return and whose stop_grace is over. Retries whose pause is
/// over need nothing here: schedule() starts them.
void Experiment::Core::run_timers() {
  while (timer_due(now)) {
    const int trial = timers_.begin()->second;
    timers_.erase(timers_.begin());
    if (info(trial).state != TrialState::leaving) continue;  // the timer of a retry
    Control& c = control(trial);
    c.overdue = true;
    if (!std::exchange(c.kill_sent, true)) commands.emplace_back(Kill{trial, info(trial).attempt});
  }
}

// --- inputs ---

std::string Experiment::Core::refusal(const Event& e) const {
  if (!begun_ || !current(e)) return {};
  const Control& c = control(e.trial);
  if (c.in_report || info(e.trial).state == TrialState::leaving) return {};
  if (e.step > c.last_step) return {};
  return "it reported step " + std::to_string(e.step) +
         (c.last_step > 0 ? " after step " + std::to_string(c.last_step) : std::string()) +
         ": the steps of an attempt start at 1 or more and rise";
}

std::int64_t Experiment::Core::wall_at(std::int64_t micros) const {
  if (wall_zero == 0) return 0;
  const auto since =
      std::chrono::duration_cast<std::chrono::microseconds>(epoch.time_since_epoch());
  return wall_zero + since.count() + micros;
}

void Experiment::Core::feed(Event event) {
  const std::int64_t at = event.micros;
  apply(std::move(event));
  if (!waiting_ends_.empty()) settle_ends(at);
}

void Experiment::Core::apply(Event e, bool replayed) {
  const bool early = !begun_ && (e.kind == Kind::room || e.kind == Kind::set);
  if (board.over && e.kind != Kind::set) return;
  if (begun_ == (e.kind == Kind::begin) && !early) return;
  const bool on_a_trial =
      e.kind == Kind::stop || ((e.kind == Kind::pause || e.kind == Kind::resume) && e.trial >= 0);
  if (on_a_trial && (!has(e.trial) || is_over(info(e.trial).state))) return;
  if (!replayed) e.wall = wall_at(e.micros);
  wall_now_ = e.wall;
  const bool of_trial = e.kind == Kind::report || e.kind == Kind::save || e.kind == Kind::restore ||
                        e.kind == Kind::end || e.kind == Kind::lost;
  if (of_trial && !current(e)) return;
  if (e.kind == Kind::report) {
    if (control(e.trial).in_report) return;
    if (info(e.trial).state == TrialState::leaving) return reply(e.trial, false);
  }
  if (e.kind == Kind::room && board.room == e.room) return;
  if ((e.kind == Kind::stored || e.kind == Kind::missing) &&
      (!durable || uses_.count(e.checkpoint.key) == 0))
    return;
  const bool too_late = late(e);
  if (e.kind == Kind::tick && !too_late && !timer_due(e.micros)) return;
  now = e.micros;
  board.seconds = e.seconds();
  if (replayed) {
    answers_.replay(std::exchange(e.answers, {}));
  } else {
    answers_.live();
  }
  const std::size_t at = log.size();
  record(e);
  switch (e.kind) {
    case Kind::begin: begun_ = true; break;
    case Kind::report: on_report(e); break;
    case Kind::save: on_save(e); break;
    case Kind::restore: on_restore(e); break;
    case Kind::end: on_end(e); break;
    case Kind::lost: on_lost(e); break;
    case Kind::room: board.room = e.room; break;
    case Kind::set: on_set(e); break;
    case Kind::add: on_add(e); break;
    case Kind::stop: on_stop(e.trial); break;
    case Kind::pause: on_pause(e.trial, true); break;
    case Kind::resume: on_pause(e.trial, false); break;
    case Kind::stored: on_stored(e); break;
    case Kind::missing: on_missing(e); break;
    case Kind::cancel: end_all("cancelled"); break;
    case Kind::interrupt: on_interrupt(); break;
    default: break;
  }
  if (e.kind == Kind::tick) run_timers();
  if (too_late)
    end_all("the time limit of " +
            duration_text(std::chrono::duration<double>(options.time_limit).count()) +
            " has passed");
  // After the program's own changes interrupted() or begin() follows.
  if (e.kind != Kind::set || e.text != kProgram) {
    schedule();
    finish_if_done();
  }
  if (keep_log) log[at].answers = answers_.take();
  if (durable) forget_trials();
}

void Experiment::Core::on_add(const Event& e) {
  added_.push_back(e.params);
  space_used_up_ = false;
  const int open = options.trials - board.created();
  if (open >= static_cast<int>(added_.size())) return;
  ++options.trials;
  show_settings();
}

void Experiment::Core::on_stop(int trial) {
  constexpr const char* kWhy = "the user stopped it";
  if (occupies_slot(info(trial).state)) return leave(trial, Next::stop, kWhy);
  waiting_.erase(std::remove(waiting_.begin(), waiting_.end(), trial), waiting_.end());
  close_trial(trial, TrialState::stopped, kWhy);
}

/// Holds the trial, or with trial -1 the study, or lets it go on. Reports that wait for the user are
/// answered then.
void Experiment::Core::on_pause(int trial, bool paused) {
  (trial < 0 ? board.paused : info(trial).paused_by_user) = paused;
  header_due |= keeps_rows();
  for (TrialInfo& t : board.trials) {
    if (is_over(t.state) || (trial >= 0 && t.number != trial)) continue;
    if (keeps_rows()) touched_.insert(t.number);
    if (control(t.number).reply_due && !(durable && blocked(t.number))) reply(t.number, true);
  }
}

/// Takes options that changed. More trials or a later limit reopen an experiment that is over.
void Experiment::Core::on_set(const Event& e) {
  const int trials = options.trials;
  if (e.text == kProgram)
    for (const auto& [name, value] : e.metrics) program[name] = value;
  tune::adopt(e.metrics, options);
  show_settings();
  space_used_up_ = false;
  const bool more =
      options.trials > trials || e.metrics.count("target") > 0 || e.metrics.count("time_limit") > 0;
  if (board.over && more) {
    board.over = ending_ = false;
    board.why_over.clear();
  }
  if (options.trials == trials) return;
  for (const Decision& d : answers_.population(options.trials)) carry_out(d);
}

void Experiment::Core::add_sample(TrialInfo& t, const Event& e) {
  t.history.push_back({e.step, e.score, e.seconds(), e.attempt});
  if (t.history.size() > kHistoryLimit) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < t.history.size(); i += 2) t.history[kept++] = t.history[i];
    if (t.history.size() % 2 == 0) t.history[kept++] = t.history.back();
    t.history.resize(kept);
  }
  t.metrics = e.metrics;
}

// --- the best state ---

/// Whether a report with a model and this score would become the best report.
bool Experiment::Core::would_be_best(double score) const {
  if (std::isnan(score)) return false;
  return !board.best_report || !board.best_report->checkpoint ||
         board.goal.better(score, board.best_report->score);
}

/// Considers a report whose model is not saved (yet): it is the best one only while no best report
/// has a model.
void Experiment::Core::reported_best(BestReport state) {
  const bool first = !board.best_report;
  if (std::isnan(state.score) || (!first && board.best_report->checkpoint)) return;
  if (first || board.goal.better(state.score, board.best_report->score)) new_best(std::move(state));
}

/// Considers a report whose model was saved. Takes the new checkpoint into use before it releases
/// the old one, since both may be the same.
void Experiment::Core::saved_best(BestReport state) {
  if (!would_be_best(state.score)) return;
  use(*state.checkpoint);
  const std::optional<BestReport> old = board.best_report;
  new_best(std::move(state));
  if (old && old->checkpoint) release(*old->checkpoint);
}

/// Sets the best report. Records an event if the score is better than the former best report's; the
/// first score of an experiment makes no event.
void Experiment::Core::new_best(BestReport state) {
  const bool better = board.best_report && board.goal.better(state.score, board.best_report->score);
  board.best = state.trial;
  board.best_report = std::move(state);
  if (!better) return;
  Event e = note(Kind::best, board.best);
  e.step = board.best_report->step;
  e.score = board.best_report->score;
  record(e);
}

// --- inputs from trials ---

void Experiment::Core::on_report(const Event& e) {
  TrialInfo& t = info(e.trial);
  Control& c = control(e.trial);
  c.in_report = true;
  c.can_save = e.can_save;
  c.last_step = e.step;
  if (e.step > c.furthest) {
    c.furthest = e.step;
    c.advanced = true;
    c.fruitless = c.alike = 0;
  }
  ++c.reports_since_save;
  ++board.reports;
  add_sample(t, e);
  put_report(e);
  if (e.can_save && would_be_best(e.score)) ask_to_save(e.trial, false);
  reported_best({e.trial, e.step, e.score, t.params, {}});
  if (ending_) return leave(e.trial, Next::stop, board.why_over);
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
  const bool again = e.step <= c.decided;  // the attempt repeats steps that were decided before
  std::vector<Decision> todo =
      answers_.report({e.trial, e.step, e.score, e.can_save, others_wait()}, again);
  if (again) {
    const auto given = c.given.find(e.step);
    todo.push_back(given == c.given.end() ? Decision{.trial = e.trial} : given->second);
  } else if (todo.front().action == Action::go_on || todo.front().action == Action::yield) {
    c.decided = e.step;
    if (todo.front().save || todo.front().action == Action::yield) c.given[e.step] = todo.front();
  }
  const bool due = options.save_every > 0 && c.reports_since_save >= options.save_every &&
                   e.can_save && !std::isnan(e.score);  // weights with a NaN score are of no use
  if (due && todo.front().action == Action::go_on) todo[0].save = true;
  for (const Decision& d : todo) carry_out(d);
}

void Experiment::Core::on_save(const Event& e) {
  Control& c = control(e.trial);
  const bool leaves = info(e.trial).state == TrialState::leaving;
  const bool due = c.saving_due;
  c.saving = c.saving_due = false;
  use(e.checkpoint);  // until the end of this function
  uses_[e.checkpoint.key].saver = e.trial;
  c.copying = -1;  // the trial has trained since the copy, so a restore can no longer prove it
  if (c.candidate) {
    BestReport state = *std::exchange(c.candidate, std::nullopt);
    state.checkpoint = e.checkpoint;
    saved_best(std::move(state));
  }
  const std::vector<int> copiers = copiers_;
  for (const int trial : copiers) {
    if (control(trial).donor == e.trial) set_source(trial, e.checkpoint);
  }
  if (!leaves || c.next != Next::restart) {  // else it goes on from its donor's weights
    adopt(e.trial, e.checkpoint, due);
    if (!durable) c.given.erase(c.given.begin(), c.given.upper_bound(e.checkpoint.step));
  }
  release(e.checkpoint);
  if (ending_ && leaves && !c.told && !std::exchange(c.kill_sent, true))
    commands.emplace_back(Kill{e.trial, e.attempt});
}

/// Compares the hash of the loaded weights with that of the checkpoint. A difference kills the
/// attempt; equal hashes prove a copy (TU-4).
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
  if (c.restores != copy.hash) return;
  copy.proven = !copy.hash.empty() && copy.hash == e.checkpoint.hash;
  Event done = note(Kind::copied, e.trial);
  done.donor = copy.donor;
  done.step = copy.own_step;
  if (t.checkpoint) done.checkpoint = *t.checkpoint;
  done.checkpoint.hash = copy.proven ? copy.hash : "";
  done.params = copy.params;
  done.donor_params = copy.donor_params;
  record(done);
}

/// Frees what the trial's attempt held: its slot and the save in progress.
void Experiment::Core::attempt_gone(int trial) {
  Control& c = control(trial);
  c.in_report = c.reply_due = false;
  c.saving = c.saving_due = false;
  c.candidate.reset();
  holders_.erase(trial);
  --used_slots_;
}

void Experiment::Core::on_end(const Event& e) {
  TrialInfo& t = info(e.trial);
  Control& c = control(e.trial);
  const bool asked = t.state == TrialState::leaving;
  const bool as_told = e.ok || c.overdue || c.next == Next::stop || c.next == Next::complete;
  attempt_gone(e.trial);
  if (asked && as_told) {
    after_attempt(e.trial);
  } else if (!e.ok) {
    attempt_failed(e.trial, e.text);
  } else if (t.history.empty()) {
    failed_for_good(e.trial,
                    "its function returned without one report, so nobody knows how good it is: "
                    "call t.report(score, model) in it");
  } else {
    close_trial(e.trial, TrialState::completed, "its function returned");
  }
  donor_gone(e.trial);
}

/// An attempt that was told to return has ended by the loss, as it was told.
void Experiment::Core::on_lost(const Event& e) {
  Control& c = control(e.trial);
  attempt_gone(e.trial);
  if (info(e.trial).state == TrialState::leaving) {
    after_attempt(e.trial);
  } else if (!c.advanced && ++c.losses >= kLossLimit) {
    attempt_failed(e.trial, "its node was lost " + std::to_string(kLossLimit) +
                                " times in a row without a further step, the last time: " + e.text);
  } else {
    if (c.advanced) c.losses = 0;
    pause(e.trial);
    queue_again(e.trial);
  }
  donor_gone(e.trial);
}

void Experiment::Core::on_interrupt() {
  if (durable) back_to_files();
  for (TrialInfo& t : board.trials) {
    Control& c = control(t.number);
    c.in_report = c.saving = c.saving_due = c.reply_due = false;
    c.candidate.reset();
    holders_.erase(t.number);
    if (!occupies_slot(t.state)) continue;
    const bool leaving = t.state == TrialState::leaving;
    const bool held = t.state == TrialState::holding || (leaving && c.next == Next::pause);
    if (durable && held && !ending_) {  // it stays held, without a process
      t.state = TrialState::paused;
      if (keeps_rows()) touched_.insert(t.number);
      continue;
    }
    if (leaving && (c.next == Next::complete || c.next == Next::stop)) {
      after_attempt(t.number);
      continue;
    }
    t.state = TrialState::waiting;
    c.urgent = true;
    waiting_.push_back(t.number);
  }
  used_slots_ = 0;
  for (const TrialInfo& t : board.trials) donor_gone(t.number);
}

}  // namespace troupe::tune
