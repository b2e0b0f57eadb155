/// The order in which views list trials.
#pragma once

#include "troupe/tune/board.hpp"

#include <algorithm>
#include <numeric>

namespace troupe::tune {

/// Returns all trial numbers, best first: the trial of the best report, then by last score. Trials
/// without a score come last, in the order of their numbers.
inline std::vector<int> ranking(const Board& board) {
  std::vector<int> order(board.trials.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return board.goal.better(board.trials[static_cast<std::size_t>(a)].score(),
                             board.trials[static_cast<std::size_t>(b)].score());
  });
  const auto best = std::find(order.begin(), order.end(), board.best);
  if (best != order.end()) std::rotate(order.begin(), best, best + 1);
  return order;
}

/// Returns a colour index per trial: its number for up to 12 trials, else its rank, so that the
/// best trials have different colours.
inline std::vector<std::size_t> shades(const Board& board) {
  std::vector<std::size_t> shade(board.trials.size());
  const std::vector<int> order = ranking(board);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto trial = static_cast<std::size_t>(order[i]);
    shade[trial] = order.size() <= 12 ? trial : i;
  }
  return shade;
}

}  // namespace troupe::tune
