// Trials that are over leave memory: a study's store has their rows.
#include "troupe/tune/internal/experiment_core.hpp"

#include <algorithm>

namespace troupe::tune {
namespace {

/// Trials that may be added until the next round of forgetting, so that a round costs little.
constexpr std::size_t kBetween = 256;

void add_gone(GoneTrials& gone, const TrialInfo& t) {
  gone.completed += t.state == TrialState::completed;
  gone.stopped += t.state == TrialState::stopped;
  gone.failed += t.state == TrialState::failed;
  gone.failures += t.failures;
  gone.copies += t.copies.size();
  for (const Copy& c : t.copies) gone.proven += c.proven;
}

}  // namespace

/// Returns for each place in Board::trials whether its trial stays in memory.
std::vector<bool> Experiment::Core::needed_trials() const {
  std::vector<bool> needed(board.trials.size());
  std::vector<std::size_t> over;
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const TrialInfo& t = board.trials[i];
    needed[i] = !is_over(t.state) || t.checkpoint || !controls_[i].held.empty() ||
                (board.best_report && board.best_report->trial == t.number) ||
                (stored_best_ && stored_best_->trial == t.number);
    if (!needed[i]) over.push_back(i);
  }
  for (const int trial : latest_over_)
    if (has(trial)) needed[place(trial)] = true;
  const std::size_t best = std::min(kBestOver, over.size());
  std::partial_sort(over.begin(), over.begin() + static_cast<std::ptrdiff_t>(best), over.end(),
                    [this](std::size_t a, std::size_t b) {
                      const double one = board.trials[a].score();
                      const double other = board.trials[b].score();
                      if (board.goal.better(one, other)) return true;
                      return !board.goal.better(other, one) && a < b;
                    });
  for (std::size_t i = 0; i < best; ++i) needed[over[i]] = true;
  return needed;
}

/// Drops the trials that are over, but for the best and the latest ones and those whose model is
/// kept. It happens after the same events in every core that follows the study.
void Experiment::Core::forget_trials() {
  if (board.trials.size() <= forget_above_) return;
  const std::vector<bool> needed = needed_trials();
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const int trial = board.trials[i].number;
    if (!needed[i] && touched_.erase(trial) > 0)
      batch.trials.push_back({static_cast<std::uint32_t>(trial), trial_row(trial)});
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < needed.size(); ++i) {
    TrialInfo& t = board.trials[i];
    if (needed[i]) {
      if (kept != i) {
        board.trials[kept] = std::move(t);
        controls_[kept] = std::move(controls_[i]);
      }
      ++kept;
      continue;
    }
    add_gone(board.gone, t);
  }
  board.trials.resize(kept);
  controls_.resize(kept);
  forget_above_ = kept + kBetween;
}

}  // namespace troupe::tune
