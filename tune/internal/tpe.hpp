/// The TPE searcher, as samplers/_tpe/sampler.py of Optuna 4 with independent sampling and constant
/// liar.
#pragma once

#include "troupe/tune/searcher.hpp"

#include <cstdint>
#include <deque>
#include <vector>

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
  /// 24 bytes a trial, beside its point.
  struct Known {
    int trial = 0;
    enum class State : std::uint8_t { running, complete, pruned, failed } state = State::running;
    long step = 0;
    double score = 0;
  };
  /// Returns the first trial with this number or a larger one.
  std::size_t place_of(int trial) const;
  /// Returns for each place in `known_` whether its trial is good.
  std::vector<bool> good_trials() const;
  /// Returns the point with the best ratio of the good trials' density to the others'.
  Point best_ratio(Random& random) const;

  Tpe settings_;
  SearchSpace space_;
  Goal goal_;
  std::uint64_t seed_;
  std::vector<Known> known_;   // by trial
  std::deque<double> values_;  // of their points, one point after the other: 8 bytes a value
  std::size_t ended_ = 0;      // complete and pruned trials
};

}  // namespace troupe::tune
