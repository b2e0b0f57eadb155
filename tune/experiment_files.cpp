// Checkpoints of a study: which of them have a file, which are needed, and what
// waits for them.
#include "troupe/tune/internal/experiment_core.hpp"

#include <algorithm>

namespace troupe::tune {
namespace {

using Kind = Event::Kind;

}  // namespace

void Experiment::Core::use(const Checkpoint& checkpoint) {
  Use& u = uses_[checkpoint.key];
  ++u.count;
  u.checkpoint = checkpoint;
}

void Experiment::Core::release(const Checkpoint& checkpoint) {
  const auto found = uses_.find(checkpoint.key);
  if (--found->second.count > 0) return;
  uses_.erase(found);
  commands.emplace_back(Drop{checkpoint});
}

bool Experiment::Core::is_stored(const Checkpoint& checkpoint) const {
  const auto found = uses_.find(checkpoint.key);
  return found != uses_.end() && found->second.stored;
}

std::optional<Checkpoint> Experiment::Core::known(const std::string& key) const {
  const auto found = uses_.find(key);
  return found == uses_.end() ? std::nullopt : std::optional(found->second.checkpoint);
}

/// Makes the trial's next attempt start from this checkpoint, and releases its
/// former one. In a study the former ones stay until a newer one has a file.
void Experiment::Core::adopt(int trial, const Checkpoint& checkpoint, bool due) {
  TrialInfo& t = info(trial);
  use(checkpoint);
  if (durable) {
    control(trial).held.push_back({checkpoint, t.params, t.copies.size(), due});
    uses_[checkpoint.key].trials.push_back(trial);
    if (is_stored(checkpoint)) put_row(trial, control(trial).held.back());
  } else if (t.checkpoint) {
    release(*t.checkpoint);
  }
  t.checkpoint = checkpoint;
  trim(trial);
}

/// Releases the checkpoint that the trial holds at this place.
void Experiment::Core::let_go(int trial, std::size_t place) {
  std::vector<Held>& held = control(trial).held;
  const Checkpoint checkpoint = held[place].checkpoint;
  held.erase(held.begin() + static_cast<std::ptrdiff_t>(place));
  Use& u = uses_[checkpoint.key];
  u.trials.erase(std::find(u.trials.begin(), u.trials.end(), trial));
  const bool again = std::find(u.trials.begin(), u.trials.end(), trial) != u.trials.end();
  if (u.stored && !again) delete_row(trial, checkpoint);
  release(checkpoint);
}

/// Releases the checkpoints that the trial does not need. It needs the newest
/// one, and the newest one with a file. A trial with a process also keeps the
/// file before, and the due checkpoints that wait for theirs.
void Experiment::Core::trim(int trial) {
  std::vector<Held>& held = control(trial).held;
  std::size_t files = info(trial).state == TrialState::paused ? 1 : 2;
  bool newest = true;
  bool any_file = false;
  for (std::size_t i = held.size(); i-- > 0;) {
    const bool file = is_stored(held[i].checkpoint);
    const bool needed = newest || (file ? files > 0 : held[i].due && !any_file);
    newest = false;
    any_file |= file;
    if (file && files > 0) --files;
    if (!needed) let_go(trial, i);
  }
}

/// Whether the trial's report must wait: the due checkpoint before its last has
/// no file yet.
bool Experiment::Core::blocked(int trial) const {
  const Control& c = control(trial);
  int without_file = c.saving && c.saving_due ? 1 : 0;
  for (const Held& h : c.held) without_file += h.due && !is_stored(h.checkpoint) ? 1 : 0;
  return without_file > 1;
}

void Experiment::Core::on_stored(const Event& e) {
  Use& u = uses_.at(e.checkpoint.key);
  u.stored = true;
  std::vector<int> trials = u.trials;
  std::sort(trials.begin(), trials.end());
  trials.erase(std::unique(trials.begin(), trials.end()), trials.end());
  for (const int trial : trials) {
    Control& c = control(trial);
    for (const Held& h : c.held)
      if (h.checkpoint.key == e.checkpoint.key) put_row(trial, h);
    c.given.erase(c.given.begin(), c.given.upper_bound(e.checkpoint.step));
    trim(trial);
    if (c.reply_due && !blocked(trial)) reply(trial, true);
  }
  if (board.best_report && board.best_report->checkpoint &&
      board.best_report->checkpoint->key == e.checkpoint.key)
    keep_best();
}

/// Remembers the best report, whose model has a file now. A restart goes back
/// to it.
void Experiment::Core::keep_best() {
  use(*board.best_report->checkpoint);
  const std::optional<BestReport> old = std::exchange(stored_best_, board.best_report);
  if (old) delete_best_row(*old->checkpoint);
  put_best_row(*stored_best_);
  if (old) release(*old->checkpoint);
}

/// Forgets a checkpoint whose file cannot be read. Its trials go on from the
/// one before.
void Experiment::Core::on_missing(const Event& e) {
  const auto is_it = [&](const std::optional<Checkpoint>& c) {
    return c && c->key == e.checkpoint.key;
  };
  use(e.checkpoint);  // until the end of this function
  uses_[e.checkpoint.key].stored = true;
  std::vector<int> trials = uses_[e.checkpoint.key].trials;
  for (const int trial : trials) {
    std::vector<Held>& held = control(trial).held;
    for (std::size_t i = held.size(); i-- > 0;) {
      if (held[i].checkpoint.key != e.checkpoint.key) continue;
      let_go(trial, i);
      break;
    }
    info(trial).checkpoint.reset();
    if (!held.empty()) info(trial).checkpoint = held.back().checkpoint;
    if (!occupies_slot(info(trial).state) && !is_over(info(trial).state)) back_to_row(trial);
    if (control(trial).reply_due && !blocked(trial)) reply(trial, true);
  }
  if (board.best_report && is_it(board.best_report->checkpoint)) {
    release(e.checkpoint);
    board.best_report->checkpoint.reset();
  }
  if (stored_best_ && is_it(stored_best_->checkpoint)) {
    delete_best_row(e.checkpoint);
    release(e.checkpoint);
    stored_best_.reset();
  }
  release(e.checkpoint);
}

/// Makes the trial's parameters those of the checkpoint from which its next
/// attempt starts (TU-4). Revokes the copies after it.
void Experiment::Core::back_to_row(int trial) {
  TrialInfo& t = info(trial);
  Control& c = control(trial);
  const Held* row = c.held.empty() ? nullptr : &c.held.back();
  const Point& params = row != nullptr ? row->params : c.first_params;
  const std::size_t copies = row != nullptr ? row->copies : 0;
  const bool pending = c.donor >= 0;  // the last copy has no weights yet
  const std::size_t made = t.copies.size() - (pending ? 1 : 0);
  if (made <= copies && t.params == params) return;
  const int donor = made > copies ? t.copies[made - 1].donor : -1;
  if (made > copies)
    t.copies.erase(t.copies.begin() + static_cast<std::ptrdiff_t>(copies),
                   t.copies.begin() + static_cast<std::ptrdiff_t>(made));
  t.params = params;
  c.copy_ready = false;
  c.copying = -1;
  const long step = row != nullptr ? row->checkpoint.step : 0;
  c.decided = c.furthest = step;
  c.given.clear();
  if (pending) return;
  answers_.kept(trial, params, step);
  Event e = note(Kind::kept, trial);
  e.donor = donor;
  e.text = "no file has the weights that it copied from trial " + std::to_string(donor);
  record(e);
}

/// After a restart only what has a file is there: goes back to the newest
/// checkpoints and to the best report that have one.
void Experiment::Core::back_to_files() {
  for (TrialInfo& t : board.trials) {
    if (is_over(t.state)) continue;
    std::vector<Held>& held = control(t.number).held;
    while (!held.empty() && !is_stored(held.back().checkpoint)) let_go(t.number, held.size() - 1);
    t.checkpoint.reset();
    if (!held.empty()) t.checkpoint = held.back().checkpoint;
    back_to_row(t.number);
  }
  if (!board.best_report || !board.best_report->checkpoint ||
      is_stored(*board.best_report->checkpoint))
    return;
  const Checkpoint lost = *board.best_report->checkpoint;
  if (stored_best_) {
    use(*stored_best_->checkpoint);
    board.best_report = stored_best_;
    board.best = stored_best_->trial;
  } else {
    board.best_report->checkpoint.reset();
  }
  release(lost);
}

/// Whether this end of an attempt must wait: it ends the trial, and a file that
/// is needed afterwards is not on disk.
bool Experiment::Core::end_waits(const Event& e) const {
  if (!durable || !begun_ || board.over || !current(e)) return false;
  const Control& c = control(e.trial);
  const TrialInfo& t = info(e.trial);
  const bool asked = t.state == TrialState::leaving;
  const bool told = asked && (c.next == Next::stop || c.next == Next::complete);
  const bool no_retry = options.max_failures >= 0 && t.failures >= options.max_failures;
  const bool ends = e.kind == Event::Kind::end && (e.ok ? !asked : no_retry);
  if (!told && !ending_ && !ends) return false;
  const auto lacks = [this](const std::optional<Checkpoint>& checkpoint) {
    return checkpoint && !is_stored(*checkpoint);
  };
  if (board.best_report && board.best_report->trial == e.trial &&
      lacks(board.best_report->checkpoint))
    return true;
  const bool completes = asked ? c.next == Next::complete : e.ok;
  if (options.save_at_end && completes && lacks(t.checkpoint)) return true;
  if (lacks(t.checkpoint) && std::any_of(copiers_.begin(), copiers_.end(), [&](int copier) {
        return control(copier).donor == e.trial;
      }))
    return true;
  return std::any_of(uses_.begin(), uses_.end(), [&](const auto& entry) {
    const Use& u = entry.second;
    const auto mine = std::count(u.trials.begin(), u.trials.end(), e.trial);
    return !u.stored && u.saver == e.trial && std::ssize(u.trials) > mine;
  });
}

/// Applies the ends that waited for files which are on disk now.
void Experiment::Core::settle_ends(std::int64_t micros) {
  for (std::size_t i = 0; i < waiting_ends_.size();) {
    if (end_waits(waiting_ends_[i])) {
      ++i;
      continue;
    }
    Event end = std::move(waiting_ends_[i]);
    waiting_ends_.erase(waiting_ends_.begin() + static_cast<std::ptrdiff_t>(i));
    end.micros = std::max(micros, now);
    apply(std::move(end));
    i = 0;
  }
}

bool Experiment::Core::has_ended(int trial, int attempt) const {
  return std::any_of(waiting_ends_.begin(), waiting_ends_.end(),
                     [&](const Event& e) { return e.trial == trial && e.attempt == attempt; });
}

/// Releases all checkpoints of a trial that is over, but for the last one if
/// that is kept.
void Experiment::Core::release_all(int trial, bool but_last) {
  TrialInfo& t = info(trial);
  if (!t.checkpoint) return;
  if (durable) {
    const std::size_t stay = but_last ? 1 : 0;
    while (control(trial).held.size() > stay) let_go(trial, 0);
  } else if (!but_last) {
    release(*t.checkpoint);
  }
  if (!but_last) t.checkpoint.reset();
}

}  // namespace troupe::tune
