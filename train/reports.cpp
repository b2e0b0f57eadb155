#include "troupe/train/internal/reports.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace troupe::train::internal {
namespace {

double mean_of(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  // Averages the differences to the first value, so the mean of equal values is exact.
  double mean = 0;
  for (const double value : values) mean += (value - values.front()) / n;
  mean += values.front();
  if (std::isfinite(mean)) return mean;
  return std::accumulate(values.begin(), values.end(), 0.0) / n;
}

}  // namespace

double reduced(const std::vector<double>& values, MetricReduce how) {
  switch (how) {
    case MetricReduce::mean: return mean_of(values);
    case MetricReduce::sum: return std::accumulate(values.begin(), values.end(), 0.0);
    case MetricReduce::min:
    case MetricReduce::max: break;
  }
  double most = values.front();
  for (const double value : values) {
    if (std::isnan(value)) return value;  // a NaN is neither least nor most: report it
    if (how == MetricReduce::min ? value < most : value > most) most = value;
  }
  return most;
}

Reports::Reports(int ranks, std::string metric, MetricReduce how)
    : ranks_(static_cast<std::size_t>(ranks)), metric_(std::move(metric)), how_(how) {}

void Reports::reported(int rank, Position at, const Metrics& metrics) {
  ranks_.at(static_cast<std::size_t>(rank)).reports.push_back({at, metrics});
}

void Reports::passed(int rank, Position now) {
  ranks_.at(static_cast<std::size_t>(rank)).now = now;
}

void Reports::over(int rank) {
  ranks_.at(static_cast<std::size_t>(rank)).over = true;
}

bool Reports::awaits(long step) const {
  const std::deque<One>& open = ranks_.front().reports;
  return std::any_of(open.begin(), open.end(),
                     [step](const One& one) { return one.metrics.step == step; });
}

std::optional<double> Reports::value_in(const Metrics& metrics) const {
  if (metric_ == "loss") return metrics.loss;
  const auto found = metrics.extra.find(metric_);
  if (found == metrics.extra.end()) return std::nullopt;
  return found->second;
}

std::optional<Position> Reports::open() const {
  const std::deque<One>& reports = ranks_.front().reports;
  if (reports.empty()) return std::nullopt;
  return reports.front().at;
}

bool Reports::waits_for(const Rank& rank, const One& report) {
  const bool reported =
      !rank.reports.empty() && rank.reports.front().metrics.step == report.metrics.step;
  return !reported && !rank.over && !before(report.at, rank.now);
}

bool Reports::waits_for(int rank) const {
  const std::deque<One>& open = ranks_.front().reports;
  return !open.empty() && waits_for(ranks_.at(static_cast<std::size_t>(rank)), open.front());
}

void Reports::drop_older(Rank& rank, const One& report) {
  while (!rank.reports.empty() && rank.reports.front().metrics.step != report.metrics.step &&
         before(rank.reports.front().at, report.at))
    rank.reports.pop_front();
}

std::optional<Reports::Complete> Reports::next() {
  if (ranks_.front().reports.empty()) return std::nullopt;
  const One& first = ranks_.front().reports.front();
  std::vector<Rank*> with;
  for (Rank& rank : ranks_) {
    drop_older(rank, first);
    if (waits_for(rank, first)) return std::nullopt;
    if (!rank.reports.empty() && rank.reports.front().metrics.step == first.metrics.step)
      with.push_back(&rank);
  }
  Complete complete{first.metrics, std::nullopt};
  std::vector<double> losses, values;
  for (Rank* rank : with) {
    const Metrics& metrics = rank->reports.front().metrics;
    losses.push_back(metrics.loss);
    if (const std::optional<double> value = value_in(metrics)) values.push_back(*value);
  }
  complete.metrics.loss = reduced(losses, metric_ == "loss" ? how_ : MetricReduce::mean);
  if (!values.empty()) complete.value = reduced(values, how_);
  if (complete.value && metric_ != "loss") complete.metrics.extra[metric_] = *complete.value;
  for (Rank* rank : with) rank->reports.pop_front();  // among them rank 0's report
  return complete;
}

}  // namespace troupe::train::internal
