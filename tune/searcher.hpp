/// Where the next point comes from: ask and tell, usable without a runtime.
///
///     auto searcher = make_searcher(Tpe{}, space.search(), maximize, seed);
///     for (int i = 0; i < 100; ++i) {
///       auto point = searcher->ask(i);
///       searcher->tell({.trial = i, .score = f(space.from_point(*point))});
///     }
///
/// Searchers are plain state machines: the same seed and the same calls give the same points.
#pragma once

#include "troupe/tune/domain.hpp"
#include "troupe/tune/goal.hpp"

#include <memory>
#include <optional>
#include <variant>

namespace troupe::tune {

/// Independent draws; grid() parameters take every combination in turn, so that trial i has cell i
/// mod cells.
struct RandomSearch {};

/// Every combination of `points` values of each parameter (all options of a choice, all values of a
/// short integer range). Afterwards ask() gives nothing.
struct GridSearch {
  int points = 5;
};

/// Halton's low-discrepancy sequence (Halton 1960), randomly shifted modulo 1 (Cranley and
/// Patterson 1976): covers the space more evenly than independent draws. Good up to about 10
/// parameters.
struct Halton {};

/// Tree-structured Parzen estimator (Bergstra et al. 2011) as Optuna 4 does it: independent
/// parameters, univariate, with running trials counted as bad ones (constant liar).
struct Tpe {
  int startup_trials = 10;  ///< random until that many trials are complete or stopped early
  int candidates = 24;      ///< draws per parameter, of which the best is taken
};

using AnySearcher = std::variant<RandomSearch, GridSearch, Halton, Tpe>;

/// How a trial ended, for the searcher.
struct Ended {
  enum class State { complete, pruned, failed };
  int trial = 0;
  State state = State::complete;
  double score = 0;  ///< the last reported one; NaN when there is none
  long step = 0;     ///< at which it was reported; orders pruned trials
};

class TROUPE_API Searcher {
 public:
  Searcher() = default;
  Searcher(const Searcher&) = delete;
  Searcher& operator=(const Searcher&) = delete;
  virtual ~Searcher();
  /// The point of a new trial, or nothing when the space is used up. Trial numbers must not repeat.
  virtual std::optional<Point> ask(int trial) = 0;
  /// A point that somebody else chose for the trial (a known good one): the searcher learns from it
  /// as from its own.
  virtual void take(int trial, const Point& point) = 0;
  /// The trial ended. Told once for each trial.
  virtual void tell(const Ended& outcome) = 0;
};

/// Throws InvalidArgument when the settings cannot work with the space.
TROUPE_API std::unique_ptr<Searcher> make_searcher(const AnySearcher& settings,
                                                   const SearchSpace& space, Goal goal,
                                                   std::uint64_t seed);
/// The settings in one line, for logs.
TROUPE_API std::string show(const AnySearcher& settings);

}  // namespace troupe::tune
