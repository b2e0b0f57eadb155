#include "troupe/tune/internal/tpe.hpp"

#include "troupe/tune/internal/parzen.hpp"
#include "troupe/tune/internal/streams.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe::tune {

std::size_t tpe_gamma(std::size_t n) {
  return std::min<std::size_t>((n + 9) / 10, 25);
}

TpeSearcher::TpeSearcher(const Tpe& settings, const SearchSpace& space, Goal goal,
                         std::uint64_t seed)
    : settings_(settings), space_(space), goal_(goal), seed_(seed) {
  if (settings.startup_trials < 0) {
    throw InvalidArgument(Code::invalid_argument, "tune::Tpe: startup_trials must not be negative");
  }
  if (settings.candidates < 1) {
    throw InvalidArgument(Code::invalid_argument, "tune::Tpe: candidates must be at least 1");
  }
}

std::optional<Point> TpeSearcher::suggest(int trial) const {
  const auto startup = static_cast<std::size_t>(std::max(settings_.startup_trials, 1));
  Random random = stream(seed_, Purpose::sample, static_cast<std::uint64_t>(trial));
  return ended_ < startup ? space_.sample(random) : best_ratio(random);
}

std::size_t TpeSearcher::place_of(int trial) const {
  const auto at =
      std::lower_bound(known_.begin(), known_.end(), trial,
                       [](const Known& known, int wanted) { return known.trial < wanted; });
  return static_cast<std::size_t>(at - known_.begin());
}

void TpeSearcher::take(int trial, const Point& point, Chosen) {
  const std::size_t place = place_of(trial);
  const auto first = values_.begin() + static_cast<std::ptrdiff_t>(place * space_.size());
  const auto end = point.begin() + static_cast<std::ptrdiff_t>(space_.size());
  if (place < known_.size() && known_[place].trial == trial) {
    std::copy(point.begin(), end, first);
    known_[place] = {.trial = trial};
    return;
  }
  known_.insert(known_.begin() + static_cast<std::ptrdiff_t>(place), {.trial = trial});
  values_.insert(first, point.begin(), end);
}

void TpeSearcher::tell(const Ended& outcome) {
  const std::size_t place = place_of(outcome.trial);
  if (place == known_.size() || known_[place].trial != outcome.trial) return;
  Known& known = known_[place];
  if (known.state != Known::State::running) return;
  if (outcome.state == Ended::State::failed || std::isnan(outcome.score)) {
    known.state = Known::State::failed;
    return;
  }
  const bool complete = outcome.state == Ended::State::complete;
  known.state = complete ? Known::State::complete : Known::State::pruned;
  known.step = outcome.step;
  known.score = outcome.score;
  ++ended_;
}

std::vector<bool> TpeSearcher::good_trials() const {
  std::vector<std::size_t> ends;
  for (std::size_t i = 0; i < known_.size(); ++i)
    if (known_[i].state == Known::State::complete || known_[i].state == Known::State::pruned)
      ends.push_back(i);
  std::stable_sort(ends.begin(), ends.end(), [this](std::size_t one, std::size_t other) {
    const Known &a = known_[one], &b = known_[other];
    const bool a_done = a.state == Known::State::complete;
    const bool b_done = b.state == Known::State::complete;
    if (a_done != b_done) return a_done;
    if (!a_done && a.step != b.step) return a.step > b.step;
    return goal_.better(a.score, b.score);
  });
  std::vector<bool> good(known_.size());
  for (std::size_t i = 0; i < tpe_gamma(ends.size()); ++i) good[ends[i]] = true;
  return good;
}

Point TpeSearcher::best_ratio(Random& random) const {
  const std::vector<bool> good = good_trials();
  Point point;
  for (std::size_t p = 0; p < space_.size(); ++p) {
    std::vector<double> below;
    std::vector<double> above;
    for (std::size_t i = 0; i < known_.size(); ++i)  // in the order of trials
      if (known_[i].state != Known::State::failed)
        (good[i] ? below : above).push_back(values_[i * space_.size() + p]);
    const ParzenEstimator l(space_.parameters[p].domain, below);
    const ParzenEstimator g(space_.parameters[p].domain, above);
    double best = 0;
    double best_score = -std::numeric_limits<double>::infinity();
    for (int i = 0; i < settings_.candidates; ++i) {
      const double x = l.draw(random);
      const double score = l.log_pdf(x) - g.log_pdf(x);
      if (i == 0 || score > best_score) {
        best = x;
        best_score = score;
      }
    }
    point.push_back(best);
  }
  return point;
}

}  // namespace troupe::tune
