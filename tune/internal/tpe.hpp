/// The TPE searcher, as samplers/_tpe/sampler.py of Optuna 4 with independent sampling and constant
/// liar.
#pragma once

#include "troupe/tune/searcher.hpp"

#include <map>

namespace troupe::tune {

/// Returns how many of n ended trials count as good: min(ceil(n / 10), 25).
std::size_t tpe_gamma(std::size_t n);

class TpeSearcher final : public Searcher {
 public:
  TpeSearcher(const Tpe& settings, const SearchSpace& space, Goal goal, std::uint64_t seed);
  std::optional<Point> suggest(int trial) const override;
  void take(int trial, const Point& point, Chosen by) override;
  void tell(const Ended& outcome) override;

 private:
  struct Known {
    Point point;
    bool running = true;
    Ended end;
  };
  /// Returns the numbers of the good trials, ascending.
  std::vector<int> good_trials() const;
  /// Returns the point with the best ratio of the good trials' density to the others'.
  Point best_ratio(Random& random) const;

  Tpe settings_;
  SearchSpace space_;
  Goal goal_;
  std::uint64_t seed_;
  std::map<int, Known> known_;  // running, complete and pruned trials; failed ones are erased
  std::size_t ended_ = 0;       // complete and pruned trials
};

}  // namespace troupe::tune
