/// The order in which views list trials.
#pragma once

#include "troupe/tune/board.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

namespace troupe::tune {

/// Returns the places in Board::trials, best first: the trial of the best report, then by last
/// score. Trials without a score come last, in the order of their numbers.
inline std::vector<int> ranking(const Board& board) {
  std::vector<int> order(board.trials.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return board.goal.better(board.trials[static_cast<std::size_t>(a)].score(),
                             board.trials[static_cast<std::size_t>(b)].score());
  });
  const auto best = std::find_if(order.begin(), order.end(), [&](int place) {
    return board.trials[static_cast<std::size_t>(place)].number == board.best;
  });
  if (best != order.end()) std::rotate(order.begin(), best, best + 1);
  return order;
}

/// Returns the place of a trial in Board::trials, or nothing when it is gone.
inline std::optional<std::size_t> place_of(const Board& board, int number) {
  const TrialInfo* t = board.find(number);
  if (t == nullptr) return std::nullopt;
  return static_cast<std::size_t>(t - board.trials.data());
}

/// Returns a colour index per place in Board::trials: the place itself for up to 12 trials, else
/// the rank, so that the best trials have different colours.
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
