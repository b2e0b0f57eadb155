#include "troupe/train/checkpoint/folder/retention.hpp"

#include "troupe/runtime/base/buggify.hpp"

#include "troupe/train/checkpoint/folder/names.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::train {

std::optional<long> best_step(std::span<const long> steps, const std::map<long, double>& values,
                              bool maximize) {
  std::vector<long> ordered(steps.begin(), steps.end());
  std::sort(ordered.begin(), ordered.end());
  std::optional<long> best;
  double best_value = 0;
  for (const long step : ordered) {
    const auto found = values.find(step);
    if (found == values.end() || !std::isfinite(found->second)) continue;
    const double value = found->second;
    if (best && !(maximize ? value > best_value : value < best_value)) continue;
    best = step;
    best_value = value;
  }
  return best;
}

std::vector<long> unneeded(std::span<const long> steps, const std::map<long, double>& values,
                           int keep, bool maximize) {
  const std::optional<long> best = best_step(steps, values, maximize);
  std::vector<long> rest(steps.begin(), steps.end());
  std::sort(rest.begin(), rest.end());
  const auto kept = std::min(rest.size(), static_cast<std::size_t>(std::max(keep, 1)));
  rest.resize(rest.size() - kept);
  if (best && !TROUPE_MUTANT("gang.best_removed")) std::erase(rest, *best);
  return rest;
}

Start choose_start(std::vector<FoundFolder> found) {
  std::sort(found.begin(), found.end(),
            [](const FoundFolder& a, const FoundFolder& b) { return a.step > b.step; });
  Start start;
  for (const FoundFolder& folder : found) {
    if (folder.problem.empty())
      start.steps.push_back(folder.step);
    else if (start.steps.empty())
      start.skipped.push_back("the checkpoint " + step_folder_name(folder.step) +
                              " is skipped: " + folder.problem);
  }
  return start;
}

}  // namespace troupe::train
