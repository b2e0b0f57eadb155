/// The order in which views list trials.
#pragma once

#include "troupe/tune/board.hpp"

#include <algorithm>
#include <numeric>

namespace troupe::tune {

/// Trial numbers: that of the best report, then best last score first; trials without a score come
/// last, in their order. A view that has no room for all shows the best one.
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

/// A colour index per trial: its number, or in larger populations its rank, so that those which are
/// looked at differ.
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
