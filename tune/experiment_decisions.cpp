#include "troupe/tune/internal/experiment_core.hpp"

#include <algorithm>

namespace troupe::tune {
namespace {

using Kind = Event::Kind;
using Action = Decision::Action;

}  // namespace

void Experiment::Core::carry_out(const Decision& d) {
  if (!has(d.trial) || (d.donor >= 0 && !has(d.donor))) return;  // a damaged log
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
      control(d.trial).decided = t.step();
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
    case Action::refuse:
      board.error = d.why;
      if (inside) leave(d.trial, Next::stop, d.why);
      return end_all(d.why);
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
  forget_copy(d.trial);
  t.copies.push_back({d.donor, t.step(), 0, board.seconds, "", false, d.donor_params, d.params});
  c.donor = d.donor;
  copiers_.push_back(d.trial);
  if (t.state == TrialState::running || t.state == TrialState::holding) {
    leave(d.trial, Next::restart, "");
  } else if (t.state == TrialState::leaving) {
    c.next = Next::restart;
  } else if (t.state == TrialState::waiting) {  // it must not start without its donor's weights
    waiting_.erase(std::remove(waiting_.begin(), waiting_.end(), d.trial), waiting_.end());
    t.state = TrialState::paused;
  }
  // A save in progress gives newer weights than the donor's last checkpoint: wait for it.
  const bool coming = control(d.donor).saving;
  if (!coming && donor.checkpoint) set_source(d.trial, *donor.checkpoint);
  if (!coming && !donor.checkpoint) donor_gone(d.donor);
}

/// Makes the copying trial's next attempt start from the donor's checkpoint. Its parameters change
/// here, together with its weights (TU-4).
void Experiment::Core::set_source(int trial, const Checkpoint& source) {
  TrialInfo& t = info(trial);
  Copy& copy = t.copies.back();
  copy.hash = source.hash;
  copy.donor_step = source.step;
  t.params = copy.params;
  adopt(trial, source, true);  // retries start from it, too
  control(trial).copy_ready = true;
  control(trial).decided = source.step;
  control(trial).given.clear();
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

/// Removes the trial's latest copy if no attempt has started from it yet.
void Experiment::Core::forget_copy(int trial) {
  Control& c = control(trial);
  if (c.donor < 0 && !c.copy_ready) return;
  info(trial).copies.pop_back();
  c.copy_ready = false;
  c.donor = -1;
  copiers_.erase(std::remove(copiers_.begin(), copiers_.end(), trial), copiers_.end());
}

/// Serves the trials that wait for a save of this donor, unless the save is still in progress. They
/// take the donor's last checkpoint; if it has none, they keep their own weights and parameters.
void Experiment::Core::donor_gone(int donor) {
  if (control(donor).saving) return;
  const std::vector<int> copiers = copiers_;
  for (const int trial : copiers) {
    if (control(trial).donor != donor) continue;
    if (info(donor).checkpoint) {
      set_source(trial, *info(donor).checkpoint);
      continue;
    }
    info(trial).copies.pop_back();
    answers_.kept(trial, info(trial).params,
                  info(trial).checkpoint ? info(trial).checkpoint->step : 0);
    Event e = note(Kind::kept, trial);
    e.donor = donor;
    e.text = "trial " + std::to_string(donor) + " ended before it had saved";
    record(e);
    stop_waiting_for_donor(trial);
  }
}

/// Sends a Save, at most once for each report. `due` is false when the checkpoint is wanted only as
/// the best report's; Options::save_every then goes on counting.
void Experiment::Core::ask_to_save(int trial, bool due) {
  Control& c = control(trial);
  if (due) {
    c.reports_since_save = 0;
    c.saving_due = true;
  }
  if (std::exchange(c.saving, true)) return;
  const TrialInfo& t = info(trial);
  c.candidate = BestReport{trial, t.step(), t.score(), t.params, {}};
  commands.emplace_back(Save{trial, t.attempt});
}

/// Holds a trial inside report(). With a checkpoint of this report it gives its slot up; without one
/// it keeps its process, since its work would be lost.
void Experiment::Core::wait_for_user(int trial) {
  const TrialInfo& t = info(trial);
  Control& c = control(trial);
  const bool saved = t.checkpoint && t.checkpoint->step == t.step();
  c.reply_due = !saved && !c.saving && !c.can_save;
  if (c.reply_due) return;
  if (!saved) ask_to_save(trial);
  c.urgent = true;  // it goes on before new trials begin
  record(note(Kind::yielded, trial));
  leave(trial, Next::wait, "");
}

void Experiment::Core::reply(int trial, bool go_on) {
  Control& c = control(trial);
  if (go_on && waits_for_user(info(trial))) return wait_for_user(trial);
  if (go_on && durable && blocked(trial)) {
    c.reply_due = true;
    return;
  }
  c.in_report = c.reply_due = false;
  if (!go_on) c.told = true;
  commands.emplace_back(Reply{trial, info(trial).attempt, go_on});
}

void Experiment::Core::leave(int trial, Next next, std::string why) {
  Control& c = control(trial);
  info(trial).state = TrialState::leaving;
  c.next = next;
  c.why = std::move(why);
  const auto grace = std::chrono::ceil<std::chrono::microseconds>(options.stop_grace).count();
  c.kill_at = grace < kNever ? now + grace : kNever;
  if (grace < kNever) timers_.emplace(c.kill_at, trial);
  if (c.in_report) reply(trial, false);
}

}  // namespace troupe::tune
