/// Board: everything known about an experiment, as one value. Every view is a function of it.
///
///     const Board& board = experiment.board();
///     for (const TrialInfo& t : board.trials) std::cout << t.number << ' ' << t.score() << '\n';
#pragma once

#include "troupe/tune/domain.hpp"
#include "troupe/tune/event.hpp"
#include "troupe/tune/goal.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe::tune {

enum class TrialState : std::uint8_t {
  waiting,  ///< ready to run, no slot yet
  running,
  holding,    ///< waits inside report() for a decision of the scheduler
  leaving,    ///< its present attempt was told to end and has not ended yet
  paused,     ///< has no slot; waits for a decision of the scheduler or for its donor's checkpoint
  completed,  ///< reached its last step or the target, or its function returned
  stopped,    ///< ended early by the scheduler or because the experiment ended
  failed,     ///< its last attempt failed and no retry is left
};
TROUPE_API std::string_view name_of(TrialState state) noexcept;
constexpr bool is_over(TrialState s) noexcept {
  return s >= TrialState::completed;
}

/// One report of a trial.
struct Sample {
  long step = 0;
  double score = 0;
  double seconds = 0;  ///< since the experiment began
  int attempt = 0;
};

/// One exploit: a trial that took over weights and parameters from its donor.
struct Copy {
  int donor = 0;        ///< the member whose weights are copied
  long own_step = 0;    ///< the trial's step before the copy
  long donor_step = 0;  ///< the step of the donor's checkpoint, from which the trial goes on
  double seconds = 0;   ///< since the experiment began
  std::string hash;     ///< of the donor's checkpoint
  bool proven = false;  ///< the trial loaded weights with this hash
  Point donor_params;
  Point params;  ///< the trial's parameters after explore
};

/// A time without a process: the trial made room for others, or waited for its donor.
struct Pause {
  double from = 0;  ///< seconds since the experiment began
  double to = -1;   ///< negative: it goes on
};

/// Everything known about one trial.
struct TrialInfo {
  int number = 0;
  TrialState state = TrialState::waiting;
  int attempt = 0;  ///< starts so far
  int failures = 0;
  Point params;
  /// One sample per report, oldest first. When there are more than 4,096, every second one is
  /// dropped.
  std::vector<Sample> history;
  std::vector<Copy> copies;
  std::vector<double> retries;  ///< when an attempt failed and the trial began again, the first 200
  std::vector<Pause> pauses;    ///< the first 1,000
  std::map<std::string, double> metrics;  ///< of the last report
  /// The checkpoint that a next attempt would start from, until the trial is over. A trial that
  /// completes keeps it if Options::save_at_end is set.
  std::optional<Checkpoint> checkpoint;
  /// The user has paused it: it starts no attempt, and an attempt that runs gives its slot up at its
  /// next report.
  bool paused_by_user = false;
  std::string note;    ///< why it ended, in plain words
  double created = 0;  ///< seconds since the experiment began

  double score() const noexcept {
    return history.empty() ? std::numeric_limits<double>::quiet_NaN() : history.back().score;
  }
  long step() const noexcept { return history.empty() ? 0 : history.back().step; }
};

/// The best report of an experiment, and the model at that report.
struct BestReport {
  int trial = 0;
  long step = 0;
  double score = 0;
  Point params;                          ///< the trial's parameters at that report
  std::optional<Checkpoint> checkpoint;  ///< of this very report; none: no report offered a model
};

/// Totals of the trials that Board::trials no longer has.
struct GoneTrials {
  int completed = 0;
  int stopped = 0;
  int failed = 0;
  int failures = 0;        ///< attempts that failed
  std::size_t copies = 0;  ///< weight copies
  std::size_t proven = 0;  ///< of these, by equal hashes
  int count() const noexcept { return completed + stopped + failed; }
};

struct Board {
  std::string name;
  std::string metric = "score";  ///< the name of the score
  Goal goal = minimize;
  SearchSpace space;
  std::string scheduler;
  std::string searcher;
  std::uint64_t seed = 0;
  int planned = 0;               ///< Options::trials
  int slots = 0;                 ///< trials that may run at a time
  std::optional<int> room = {};  ///< attempts that fit on the cluster now, if that is known
  long max_steps = 0;
  double seconds = 0;   ///< since the experiment began
  bool paused = false;  ///< by the user, as if each trial were (TrialInfo::paused_by_user)
  bool over = false;
  std::string why_over;
  std::string error;  ///< why the scheduler refused the program; empty when it did not
  int best = -1;      ///< the trial of best_report, or -1
  /// The best report of all. Any report with a saved model precedes all reports without one, so
  /// that the score and the model belong together.
  std::optional<BestReport> best_report;
  /// By number. All of up to 1,000 trials. Of more, a study with a store keeps those that are not
  /// over, the best 100 and the latest 100 of the others, and those whose model is kept.
  std::vector<TrialInfo> trials;
  GoneTrials gone;
  std::uint64_t reports = 0;      ///< received so far
  std::uint64_t events_seen = 0;  ///< how many events were ever in `events`
  std::deque<Event> events;       ///< the latest 1,000 that plain_words() describes (no reports)

  /// Returns how many trials there are, those that are gone included.
  int created() const noexcept { return static_cast<int>(trials.size()) + gone.count(); }
  /// Returns the trial with this number; null when there is none or it is gone.
  const TrialInfo* find(int number) const noexcept {
    const auto at = static_cast<std::size_t>(number);
    if (number >= 0 && at < trials.size() && trials[at].number == number) return &trials[at];
    const auto found =
        std::lower_bound(trials.begin(), trials.end(), number,
                         [](const TrialInfo& t, int wanted) { return t.number < wanted; });
    return found != trials.end() && found->number == number ? &*found : nullptr;
  }

  /// The score of best_report. Without one (a board made by hand) the last score of trial `best`,
  /// or NaN.
  double best_score() const noexcept {
    if (best_report) return best_report->score;
    const TrialInfo* of = find(best);
    return of == nullptr ? std::numeric_limits<double>::quiet_NaN() : of->score();
  }
  long best_step() const noexcept {
    if (best_report) return best_report->step;
    const TrialInfo* of = find(best);
    return of == nullptr ? 0 : of->step();
  }
  /// Requires a best trial.
  const Point& best_params() const noexcept {
    return best_report ? best_report->params : find(best)->params;
  }
};

}  // namespace troupe::tune
