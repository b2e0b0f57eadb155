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

void TpeSearcher::take(int trial, const Point& point, Chosen) {
  known_[trial] = {point, true, {}};
}

void TpeSearcher::tell(const Ended& outcome) {
  const auto at = known_.find(outcome.trial);
  if (at == known_.end() || !at->second.running) return;
  if (outcome.state == Ended::State::failed || std::isnan(outcome.score)) {
    known_.erase(at);
    return;
  }
  at->second.running = false;
  at->second.end = outcome;
  ++ended_;
}

std::vector<int> TpeSearcher::good_trials() const {
  std::vector<const Ended*> ends;
  for (const auto& [trial, known] : known_) {
    if (!known.running) ends.push_back(&known.end);
  }
  std::stable_sort(ends.begin(), ends.end(), [this](const Ended* a, const Ended* b) {
    const bool a_done = a->state == Ended::State::complete;
    const bool b_done = b->state == Ended::State::complete;
    if (a_done != b_done) return a_done;
    if (!a_done && a->step != b->step) return a->step > b->step;
    return goal_.better(a->score, b->score);
  });
  std::vector<int> good;
  for (std::size_t i = 0; i < tpe_gamma(ends.size()); ++i) good.push_back(ends[i]->trial);
  std::sort(good.begin(), good.end());
  return good;
}

Point TpeSearcher::best_ratio(Random& random) const {
  const std::vector<int> good = good_trials();
  Point point;
  for (std::size_t p = 0; p < space_.size(); ++p) {
    std::vector<double> below;
    std::vector<double> above;
    for (const auto& [trial, known] : known_) {  // in the order of trials
      const bool is_good = std::binary_search(good.begin(), good.end(), trial);
      (is_good ? below : above).push_back(known.point[p]);
    }
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
