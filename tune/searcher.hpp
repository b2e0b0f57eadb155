/// Searchers: they propose the parameters of new trials, by ask and tell, and need no runtime.
///
///     auto searcher = make_searcher(Tpe{}, space.search(), maximize, seed);
///     for (int i = 0; i < 100; ++i) {
///       auto point = searcher->ask(i);
///       searcher->tell({.trial = i, .score = f(space.from_point(*point))});
///     }
///
/// Searchers are plain state machines: the same seed and the same calls give the same points.
/// take() and tell() alone change their state, so that recorded points rebuild a searcher without a
/// suggestion.
#pragma once

#include "troupe/tune/domain.hpp"
#include "troupe/tune/goal.hpp"

#include <memory>
#include <optional>
#include <variant>

namespace troupe::tune {

/// Draws parameters independently. With grid() parameters, one draw of the other parameters is
/// combined with every cell of the grid in turn: its point i gets cell i mod the cell count.
struct RandomSearch {};

/// Proposes every combination of `points` values per parameter (all options of a choice, all values
/// of an integer range of at most `points`). After the last combination ask() returns nothing.
struct GridSearch {
  int points = 5;
};

/// Halton's low-discrepancy sequence (Halton 1960), randomly shifted modulo 1 (Cranley and
/// Patterson 1976). It covers the space more evenly than independent draws, for up to about 10
/// parameters.
struct Halton {};

/// Tree-structured Parzen estimator (Bergstra et al. 2011) as in Optuna 4: univariate, each
/// parameter on its own, with running trials counted among the bad ones (constant liar).
struct Tpe {
  int startup_trials = 10;  ///< random search until so many trials completed or were stopped early
  int candidates = 24;      ///< draws per parameter; the one with the best l(x) / g(x) is taken
};

using AnySearcher = std::variant<RandomSearch, GridSearch, Halton, Tpe>;

/// The end of a trial, for Searcher::tell().
struct Ended {
  enum class State { complete, pruned, failed };
  int trial = 0;
  State state = State::complete;
  double score = 0;  ///< the last reported score; NaN when the trial reported none
  long step = 0;     ///< the step of that score; orders pruned trials
};

/// Who chose the point of a trial.
enum class Chosen { by_searcher, by_user };

/// Proposes points and learns from the scores of trials. Calls may not overlap.
class TROUPE_API Searcher {
 public:
  Searcher() = default;
  Searcher(const Searcher&) = delete;
  Searcher& operator=(const Searcher&) = delete;
  virtual ~Searcher();
  /// Returns the point of a new trial, or nothing when the space is used up. Trial numbers must not
  /// repeat. The same as suggest() and then take().
  std::optional<Point> ask(int trial);
  /// Returns the point that a new trial should have, or nothing when the space is used up. The same
  /// state gives the same point.
  virtual std::optional<Point> suggest(int trial) const = 0;
  /// Registers a trial and its point. The searcher learns from its score, whoever chose the point.
  /// A point that the user chose (Options::starts) uses up no cell of a grid.
  virtual void take(int trial, const Point& point, Chosen by) = 0;
  void take(int trial, const Point& point) { take(trial, point, Chosen::by_user); }
  /// Records the end of a trial. Call it once for each trial.
  virtual void tell(const Ended& outcome) = 0;
};

/// Makes the searcher of these settings. Throws InvalidArgument when they cannot work with the
/// space.
TROUPE_API std::unique_ptr<Searcher> make_searcher(const AnySearcher& settings,
                                                   const SearchSpace& space, Goal goal,
                                                   std::uint64_t seed);
/// Formats the settings in one line, for logs.
TROUPE_API std::string show(const AnySearcher& settings);

}  // namespace troupe::tune
