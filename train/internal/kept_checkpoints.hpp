/// KeptCheckpoints: chooses the checkpoints of a run to keep, the latest one and the one whose
/// step has the best value. A plain state machine.
///
///     KeptCheckpoints kept(/*maximize=*/true);
///     kept.saved(model, /*awaited=*/false);
///     kept.valued(model.step, 0.93);
///     kept.best;  // model
///
/// A checkpoint and a report of the same step belong together, in whichever order they come.
#pragma once

#include "troupe/train/checkpoint.hpp"

#include <optional>
#include <vector>

namespace troupe::train::internal {

class KeptCheckpoints {
 public:
  explicit KeptCheckpoints(bool maximize) noexcept : maximize_(maximize) {}
  /// Keeps `model` as the latest. `awaited`: the report of the previous latest one's step may
  /// still come.
  void saved(const SavedModel& model, bool awaited);
  /// Records the report of a step and its value, which is empty or not finite when the report had
  /// none.
  void valued(long step, std::optional<double> value);
  /// Call it when the run restarts from an earlier step, whose reports then come again.
  void start_again();

  SavedModel latest, best;
  std::optional<double> best_value;

 private:
  void keep_best(const SavedModel& model);

  bool maximize_;
  std::vector<SavedModel> unjudged_;  // checkpoints whose reports may still come
  std::optional<double> value_;       // of the last report
  long step_ = 0;
};

}  // namespace troupe::train::internal
