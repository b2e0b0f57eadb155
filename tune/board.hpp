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
  std::optional<Checkpoint> checkpoint;   ///< the latest
  std::string note;                       ///< why it ended, in plain words
  double created = 0;                     ///< seconds since the experiment began

  double score() const noexcept {
    return history.empty() ? std::numeric_limits<double>::quiet_NaN() : history.back().score;
  }
  long step() const noexcept { return history.empty() ? 0 : history.back().step; }
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
  int best = -1;  ///< trial with the best last score, or -1
  std::vector<TrialInfo> trials;
  std::uint64_t reports = 0;      ///< received so far
  std::uint64_t events_seen = 0;  ///< that were ever in `events`
  std::deque<Event> events;       ///< the latest 1,000 that people care about (no plain reports)
};

}  // namespace troupe::tune
