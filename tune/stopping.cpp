#include "troupe/tune/internal/schedulers.hpp"
#include "troupe/tune/internal/text.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe::tune {
namespace {

Decision verdict(int trial, bool stopped, const std::string& why) {
  Decision decision{.trial = trial};
  if (stopped) {
    decision.action = Decision::Action::stop;
    decision.why = why;
  }
  return decision;
}

constexpr double kWorst = -std::numeric_limits<double>::infinity();

}  // namespace

MedianScheduler::MedianScheduler(const MedianStopping& options, const SchedulerSetup& setup)
    : options_(options), goal_(setup.goal) {
  if (options.grace < 0) refuse("MedianStopping", "grace must not be negative");
  if (options.min_samples < 1) refuse("MedianStopping", "min_samples must be at least 1");
}

void MedianScheduler::observe(const Report& report) {
  std::vector<Sample>& mine = history_[report.trial];
  // After a restore the trial reports earlier steps again: the new reports replace the old ones.
  while (!mine.empty() && mine.back().step >= report.step) mine.pop_back();
  Sample now = mine.empty() ? Sample{.best = kWorst} : mine.back();
  now.step = report.step;
  if (const double gain = goal_.gain(report.score); !std::isnan(gain)) {
    now.best = std::max(now.best, gain);
    if (report.step >= options_.grace) {
      if (now.count++ == 0) now.first = gain;
      if (std::isinf(gain)) {
        now.infinite += gain;
      } else {
        now.above += static_cast<long double>(gain) - now.first;  // wide, so that no sum overflows
      }
    }
  }
  mine.push_back(now);
}

void MedianScheduler::decide(const Report& report, std::vector<Decision>& out) const {
  if (report.step < options_.grace) return out.push_back({.trial = report.trial});
  std::vector<double> means;
  for (const auto& [trial, samples] : history_) {
    if (trial == report.trial || samples.back().step < report.step) continue;
    const auto after = std::upper_bound(samples.begin(), samples.end(), report.step,
                                        [](long step, const Sample& s) { return step < s.step; });
    if (after != samples.begin() && std::prev(after)->count > 0)
      means.push_back(std::prev(after)->mean());
  }
  const double best = history_.at(report.trial).back().best;
  const auto median = percentile(means, 50);
  const bool judged = static_cast<int>(means.size()) >= options_.min_samples && median;
  const bool stopped = judged && best < *median;
  out.push_back(verdict(report.trial, stopped,
                        stopped ? "its best " + number(goal_.gain(best)) +
                                      " is worse than the median " + number(goal_.gain(*median)) +
                                      " of the others' means"
                                : ""));
}

PercentileScheduler::PercentileScheduler(const PercentileStopping& options,
                                         const SchedulerSetup& setup)
    : options_(options), goal_(setup.goal) {
  if (!(options.percentile >= 0 && options.percentile <= 100)) {
    refuse("PercentileStopping", "percentile must be from 0 to 100");
  }
  if (options.startup_trials < 0) {
    refuse("PercentileStopping", "startup_trials must not be negative");
  }
}

void PercentileScheduler::observe(const Report& report) {
  Curve& mine = curves_[report.trial];
  // After a restore the trial reports earlier steps again: the new reports replace the old ones.
  mine.points.erase(mine.points.lower_bound(report.step), mine.points.end());
  const double gain = goal_.gain(report.score);
  // fmax of a number and NaN is the number.
  const double best =
      mine.points.empty() ? gain : std::fmax(mine.points.rbegin()->second.best, gain);
  mine.points.emplace_hint(mine.points.end(), report.step, Point{gain, best});
}

void PercentileScheduler::decide(const Report& report, std::vector<Decision>& out) const {
  const double best = curves_.at(report.trial).points.rbegin()->second.best;
  const bool any = !std::isnan(best);
  out.push_back({.trial = report.trial});
  if (complete_ < std::max(options_.startup_trials, 1) || report.step < options_.warmup) return;
  std::vector<double> peers;
  for (const auto& [trial, curve] : curves_) {
    if (trial == report.trial || !curve.complete) continue;
    const auto at = curve.points.find(report.step);
    if (at != curve.points.end()) peers.push_back(at->second.gain);
  }
  // Larger gains are better, so the best p percent are those above the (100 - p)th percentile.
  const auto cutoff = percentile(peers, 100 - options_.percentile);
  const bool stopped = !any || (cutoff && best < *cutoff);
  if (!stopped) return;
  out.back() =
      verdict(report.trial, true,
              any ? "its best " + number(goal_.gain(best)) + " is worse than the percentile " +
                        number(goal_.gain(*cutoff)) + " of completed trials"
                  : std::string("no score that is a number"));
}

void PercentileScheduler::decided(const std::vector<Decision>& decisions) {
  for (const Decision& d : decisions)
    if (d.action == Decision::Action::stop) curves_[d.trial].stopped = true;
}

void PercentileScheduler::observe(const TrialOver& end) {
  if (end.failed) return;
  Curve& curve = curves_[end.trial];
  if (curve.stopped || curve.complete) return;
  curve.complete = true;
  ++complete_;
}

PatienceScheduler::PatienceScheduler(const Patience& options, const SchedulerSetup& setup)
    : options_(options), goal_(setup.goal) {
  if (options.patience < 0) refuse("Patience", "patience must not be negative");
  if (!(options.min_delta >= 0)) refuse("Patience", "min_delta must not be negative");
}

void PatienceScheduler::observe(const Report& report) {
  std::map<long, Point>& points = points_[report.trial];
  // After a restore the trial reports earlier steps again: the new reports replace the old ones.
  points.erase(points.lower_bound(report.step), points.end());
  const double gain = std::isnan(report.score) ? kWorst : goal_.gain(report.score);
  const double best = points.empty() ? gain : std::max(points.rbegin()->second.best, gain);
  points.emplace_hint(points.end(), report.step, Point{gain, best});
}

void PatienceScheduler::observe(const TrialOver& end) {
  points_.erase(end.trial);
}

void PatienceScheduler::decide(const Report& report, std::vector<Decision>& out) const {
  const std::map<long, Point>& points = points_.at(report.trial);
  const auto window = static_cast<std::size_t>(options_.patience) + 1;
  bool stopped = false;
  if (points.size() > window) {
    const auto split = std::prev(points.end(), static_cast<std::ptrdiff_t>(window));
    double lately = kWorst;
    for (auto it = split; it != points.end(); ++it) lately = std::max(lately, it->second.gain);
    stopped = std::prev(split)->second.best - options_.min_delta > lately;
  }
  out.push_back(verdict(report.trial, stopped,
                        "no better score within " + std::to_string(window) + " reports"));
}

}  // namespace troupe::tune
