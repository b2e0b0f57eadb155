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

constexpr double worst = -std::numeric_limits<double>::infinity();

}  // namespace

MedianScheduler::MedianScheduler(const MedianStopping& options, const SchedulerSetup& setup)
    : options_(options), goal_(setup.goal) {
  if (options.grace < 0) refuse("MedianStopping", "grace must not be negative");
  if (options.min_samples < 1) refuse("MedianStopping", "min_samples must be at least 1");
}

void MedianScheduler::reported(const Report& report, std::vector<Decision>& out) {
  std::vector<Sample>& mine = history_[report.trial];
  while (!mine.empty() && mine.back().step >= report.step) mine.pop_back();  // after a restore
  mine.push_back({report.step, goal_.gain(report.score)});
  if (report.step < options_.grace) return out.push_back({.trial = report.trial});
  std::vector<double> means;
  for (const auto& [trial, samples] : history_) {
    if (trial == report.trial || samples.back().step < report.step) continue;
    double sum = 0;
    int n = 0;
    for (const Sample& s : samples) {
      if (s.step < options_.grace || s.step > report.step || std::isnan(s.gain)) continue;
      sum += s.gain;
      ++n;
    }
    if (n > 0) means.push_back(sum / n);
  }
  double best = worst;
  for (const Sample& s : mine) best = std::max(best, std::isnan(s.gain) ? worst : s.gain);
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

void PercentileScheduler::reported(const Report& report, std::vector<Decision>& out) {
  Curve& mine = curves_[report.trial];
  mine.gains.erase(mine.gains.lower_bound(report.step), mine.gains.end());  // after a restore
  mine.gains[report.step] = goal_.gain(report.score);
  out.push_back({.trial = report.trial});
  if (complete_ < std::max(options_.startup_trials, 1) || report.step < options_.warmup) return;
  double best = worst;
  bool any = false;
  for (const auto& [step, gain] : mine.gains) {
    if (std::isnan(gain)) continue;
    best = std::max(best, gain);
    any = true;
  }
  std::vector<double> peers;
  for (const auto& [trial, curve] : curves_) {
    const auto at = curve.gains.find(report.step);
    if (trial != report.trial && curve.complete && at != curve.gains.end()) {
      peers.push_back(at->second);
    }
  }
  // gains grow when better, so "the best p percent go on" is the (100 - p)th percentile from below
  const auto cutoff = percentile(peers, 100 - options_.percentile);
  const bool stopped = !any || (cutoff && best < *cutoff);
  if (!stopped) return;
  mine.stopped = true;
  out.back() =
      verdict(report.trial, true,
              any ? "its best " + number(goal_.gain(best)) + " is worse than the percentile " +
                        number(goal_.gain(*cutoff)) + " of completed trials"
                  : std::string("no score that is a number"));
}

void PercentileScheduler::finished(int trial, std::vector<Decision>&) {
  Curve& curve = curves_[trial];
  if (curve.stopped || curve.complete) return;
  curve.complete = true;
  ++complete_;
}

PatienceScheduler::PatienceScheduler(const Patience& options, const SchedulerSetup& setup)
    : options_(options), goal_(setup.goal) {
  if (options.patience < 0) refuse("Patience", "patience must not be negative");
  if (!(options.min_delta >= 0)) refuse("Patience", "min_delta must not be negative");
}

void PatienceScheduler::reported(const Report& report, std::vector<Decision>& out) {
  std::map<long, double>& gains = gains_[report.trial];
  const double gain = goal_.gain(report.score);
  gains.erase(gains.lower_bound(report.step), gains.end());  // after a restore
  gains[report.step] = std::isnan(gain) ? worst : gain;
  const auto window = static_cast<std::size_t>(options_.patience) + 1;
  bool stopped = false;
  if (gains.size() > window) {
    const auto split = std::prev(gains.end(), static_cast<std::ptrdiff_t>(window));
    double before = worst;
    double lately = worst;
    for (auto it = gains.begin(); it != split; ++it) before = std::max(before, it->second);
    for (auto it = split; it != gains.end(); ++it) lately = std::max(lately, it->second);
    stopped = before - options_.min_delta > lately;
  }
  out.push_back(verdict(report.trial, stopped,
                        "no better score within " + std::to_string(window) + " reports"));
}

}  // namespace troupe::tune
