/// What is known about an experiment: the value that every view is drawn from.
///
///     const Board& board = experiment.board();
///     for (const TrialInfo& t : board.trials) std::cout << t.number << ' ' << t.score() << '\n';
#pragma once

#include "troupe/tune/domain.hpp"
#include "troupe/tune/event.hpp"
#include "troupe/tune/goal.hpp"

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
  holding,    ///< inside report(), until the scheduler goes on
  leaving,    ///< told to end its present attempt
  paused,     ///< has a checkpoint and no slot, until the scheduler goes on
  completed,  ///< reached its end
  stopped,    ///< ended early by the scheduler or because the experiment ended
  failed,     ///< its last attempt failed and no retry is left
};
TROUPE_API std::string_view name_of(TrialState state) noexcept;
constexpr bool is_over(TrialState s) noexcept {
  return s >= TrialState::completed;
}

struct Sample {
  long step = 0;
  double score = 0;
  double seconds = 0;  ///< since the experiment began
  int attempt = 0;
};

/// One exploit: what a trial took over from a better one.
struct Copy {
  int donor = 0;
  long own_step = 0;    ///< where the trial was
  long donor_step = 0;  ///< where it goes on
  double seconds = 0;
  std::string hash;     ///< of the donor's checkpoint
  bool proven = false;  ///< the trial loaded weights with the same hash
  Point donor_params;
  Point params;
};

struct TrialInfo {
  int number = 0;
  TrialState state = TrialState::waiting;
  int attempt = 0;  ///< starts so far
  int failures = 0;
  Point params;
  /// One per report, oldest first; every second one is dropped when there are 4,096.
  std::vector<Sample> history;
  std::vector<Copy> copies;
  std::map<std::string, double> metrics;  ///< of the last report
  /// The latest, while the trial lives; of a completed one with Options::save_at_end.
  std::optional<Checkpoint> checkpoint;
  std::string note;    ///< why it ended, in plain words
  double created = 0;  ///< seconds since the experiment began

  double score() const noexcept {
    return history.empty() ? std::numeric_limits<double>::quiet_NaN() : history.back().score;
  }
  long step() const noexcept { return history.empty() ? 0 : history.back().step; }
};

/// The best state that a trial reported, and its model.
struct BestReport {
  int trial = 0;
  long step = 0;
  double score = 0;
  Point params;                          ///< with which the trial came there
  std::optional<Checkpoint> checkpoint;  ///< of this very state; none: no report offered a model
};

struct Board {
  std::string name;
  std::string metric = "score";  ///< how the score is called
  Goal goal = minimize;
  SearchSpace space;
  std::string scheduler;
  std::string searcher;
  std::uint64_t seed = 0;
  int planned = 0;  ///< trials asked for
  int slots = 0;    ///< that may run at a time
  long max_steps = 0;
  double seconds = 0;  ///< since the experiment began
  bool over = false;
  std::string why_over;
  std::string error;  ///< the mistake in the program for which it could not go on; else empty
  int best = -1;      ///< the trial of best_report, or -1
  /// The best report of all. Those that offered a model go before those that did not, so that the
  /// score and the model belong together.
  std::optional<BestReport> best_report;
  std::vector<TrialInfo> trials;
  std::uint64_t reports = 0;      ///< received so far
  std::uint64_t events_seen = 0;  ///< that were ever in `events`
  std::deque<Event> events;       ///< the latest 1,000 that people care about (no plain reports)

  /// Of best_report; of a board made by hand the best trial's last score; NaN without one.
  double best_score() const noexcept {
    if (best_report) return best_report->score;
    return best < 0 ? std::numeric_limits<double>::quiet_NaN()
                    : trials[static_cast<std::size_t>(best)].score();
  }
  long best_step() const noexcept {
    if (best_report) return best_report->step;
    return best < 0 ? 0 : trials[static_cast<std::size_t>(best)].step();
  }
  /// There must be a best trial.
  const Point& best_params() const noexcept {
    return best_report ? best_report->params : trials[static_cast<std::size_t>(best)].params;
  }
};

}  // namespace troupe::tune
