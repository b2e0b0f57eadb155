#include "troupe/runtime/control/slow_nodes.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace troupe::control {
namespace {

constexpr std::size_t kBeats = 8;  ///< heartbeats that count
/// Nanoseconds. The run times of shorter tasks are mostly noise.
constexpr double kShortest = 100'000;

/// Which of two middle values a median takes: always the one that makes fewer nodes slow. That is
/// the lower one among a node's own figures, and the higher one among those it is compared with.
enum class Middle { lower, higher };

template <class T>
T median(std::vector<T> values, Middle which) {
  const std::size_t at = (values.size() - (which == Middle::lower ? 1 : 0)) / 2;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(at);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string text_of(double ratio, std::size_t nodes) {
  char text[96];
  std::snprintf(text, sizeof text, "its tasks take %.1f times as long as the median of %zu nodes",
                ratio, nodes);
  return text;
}

std::string text_of(Duration late) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(late).count();
  return "its heartbeats come " + std::to_string(ms) + " ms late";
}

}  // namespace

void SlowNodes::on_pace(NodeId id, std::span<const wire::SitePace> sites, Time now) {
  Node& node = nodes_[id];
  looks_ = true;
  for (const wire::SitePace& site : sites) {
    if (site.tasks == 0) continue;
    if (node.functions.count(site.function) == 0 && node.functions.size() >= options_.functions) {
      const auto oldest = std::min_element(
          node.functions.begin(), node.functions.end(),
          [](const auto& a, const auto& b) { return a.second.back().at < b.second.back().at; });
      node.functions.erase(oldest);
    }
    auto& reports = node.functions[site.function];
    reports.push_back({now, static_cast<double>(site.ran_ns) / site.tasks});
    if (reports.size() > options_.most) reports.pop_front();
  }
}

void SlowNodes::on_heartbeat(NodeId id, Time now) {
  Node& node = nodes_[id];
  if (node.heard) {
    node.lateness.push_back(std::max(now - *node.heard - options_.heartbeat, Duration(0)));
    if (node.lateness.size() > kBeats) node.lateness.pop_front();
  }
  node.heard = now;
  if (!node.lateness.empty() && node.lateness.back() >= options_.late) looks_ = true;
}

void SlowNodes::forget(NodeId node) {
  nodes_.erase(node);
}

/// Returns by which factor each node's tasks take longer than the median node's.
std::map<NodeId, SlowNodes::Figure> SlowNodes::figures(Time now) {
  std::map<wire::FunctionKey, std::vector<std::pair<NodeId, double>>> by_function;
  for (auto& [id, node] : nodes_)
    for (auto at = node.functions.begin(); at != node.functions.end();) {
      auto& reports = at->second;
      while (!reports.empty() && reports.front().at + options_.keep <= now) reports.pop_front();
      if (reports.empty()) {
        at = node.functions.erase(at);
        continue;
      }
      if (reports.size() >= options_.enough) {
        std::vector<double> means;
        for (const Report& report : reports) means.push_back(report.ns);
        by_function[at->first].emplace_back(id, median(std::move(means), Middle::lower));
      }
      ++at;
    }
  std::map<NodeId, std::vector<std::pair<double, std::size_t>>> ratios;  // with how many nodes
  for (const auto& [function, rows] : by_function) {
    if (rows.size() < options_.nodes) continue;
    std::vector<double> all;
    for (const auto& row : rows) all.push_back(row.second);
    const double middle = median(std::move(all), Middle::higher);
    if (middle < kShortest) continue;
    for (const auto& [id, ns] : rows) {
      const double ratio = ns / middle;
      const bool differs = ns - middle >= static_cast<double>(options_.margin.count());
      ratios[id].emplace_back(differs ? ratio : std::min(ratio, 1.0), rows.size());
    }
  }
  std::map<NodeId, Figure> figures;
  for (auto& [id, of_node] : ratios) {
    const auto middle = median(of_node, Middle::lower);
    figures[id] = {middle.first, middle.second};
  }
  return figures;
}

/// Returns the nodes whose heartbeats are late again and again, if most others' are not.
std::map<NodeId, Duration> SlowNodes::late_ones() const {
  std::vector<Duration> all;
  std::map<NodeId, Duration> late;
  for (const auto& [id, node] : nodes_) {
    if (node.lateness.size() < options_.enough) continue;
    all.push_back(
        late[id] = median(std::vector(node.lateness.begin(), node.lateness.end()), Middle::lower));
  }
  if (all.size() < options_.nodes) return {};
  const auto middle = median(all, Middle::higher);
  for (auto at = late.begin(); at != late.end();) {
    const bool slow =
        at->second >= options_.late && static_cast<double>(at->second.count()) >=
                                           options_.slow_from * static_cast<double>(middle.count());
    at = slow ? std::next(at) : late.erase(at);
  }
  return late;
}

std::vector<SlowNodes::Change> SlowNodes::on_tick(Time now) {
  std::vector<Change> changes;
  if (now < next_look_) return changes;
  next_look_ = now + options_.look;
  looks_ = false;
  const auto figures = this->figures(now);
  const auto late = late_ones();
  for (auto& [id, node] : nodes_) {
    const auto figure = figures.find(id);
    const auto lateness = late.find(id);
    const bool compared = figure != figures.end();
    const bool slow_tasks = compared && figure->second.ratio >= options_.slow_from;
    const bool fast_tasks = compared && figure->second.ratio < options_.fast_below;
    if (node.state != State::slow && (slow_tasks || lateness != late.end())) {
      const bool relapse = node.state == State::tried;
      node.trial = relapse ? std::min(2 * node.trial, options_.last_trial) : options_.first_trial;
      node.tried_at = now + node.trial;
      node.state = State::slow;
      node.by_heartbeats = !slow_tasks;
      node.functions.clear();  // only later reports show whether it is fast again
      changes.push_back({id, true,
                         slow_tasks ? text_of(figure->second.ratio, figure->second.nodes)
                                    : text_of(lateness->second),
                         !relapse});
    } else if (node.state != State::fast && lateness == late.end() &&
               (node.by_heartbeats ? !slow_tasks : fast_tasks)) {
      node.state = State::fast;
      changes.push_back({id, false, "", true});
    } else if (node.state == State::slow && !node.by_heartbeats && now >= node.tried_at) {
      node.state = State::tried;
      node.functions.clear();
      changes.push_back({id, false, "it was slow and is tried again", false});
    }
    looks_ = looks_ || node.state == State::slow;
  }
  return changes;
}

}  // namespace troupe::control
