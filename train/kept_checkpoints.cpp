#include "troupe/train/internal/kept_checkpoints.hpp"

#include <cmath>

namespace troupe::train::internal {

void KeptCheckpoints::saved(const SavedModel& model, bool awaited) {
  if (latest && awaited) unjudged_.push_back(latest);
  latest = model;
  keep_best(model);
}

void KeptCheckpoints::valued(long step, std::optional<double> value) {
  value_ = value && std::isfinite(*value) ? value : std::nullopt;
  step_ = step;
  keep_best(latest);
  for (const SavedModel& model : unjudged_) keep_best(model);
  std::erase_if(unjudged_, [step](const SavedModel& m) { return m.step <= step; });
}

void KeptCheckpoints::start_again() {
  unjudged_.clear();
  value_.reset();
  step_ = 0;
}

void KeptCheckpoints::keep_best(const SavedModel& model) {
  if (!model || !value_ || model.step != step_) return;
  if (best && best_value && !(maximize_ ? *value_ > *best_value : *value_ < *best_value)) return;
  best = model;
  best_value = value_;
}

}  // namespace troupe::train::internal
