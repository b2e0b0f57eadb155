/// Which checkpoints of a run are kept: the latest, and the one whose step has the best value. A
/// plain state machine.
///
///     KeptCheckpoints kept(/*maximize=*/true);
///     kept.saved(model, /*awaited=*/false);
///     kept.valued(model.step, 0.93);
///     kept.best;  // model
///
/// A checkpoint and a report of one step belong together, whichever comes first.
#pragma once

#include "troupe/train/checkpoint.hpp"

#include <optional>
#include <vector>

namespace troupe::train::internal {

class KeptCheckpoints {
 public:
  explicit KeptCheckpoints(bool maximize) noexcept : maximize_(maximize) {}
  /// `awaited`: the report of the latest one's step may still come.
  void saved(const SavedModel& model, bool awaited);
  /// The report of a step, with the value that counts, if it is a finite one.
  void valued(long step, std::optional<double> value);
  /// The run goes on from an earlier step: reports come again.
  void start_again();

  SavedModel latest, best;
  std::optional<double> best_value;

 private:
  void keep_best(const SavedModel& model);

  bool maximize_;
  std::vector<SavedModel> unjudged_;  // whose reports may still come
  std::optional<double> value_;       // of the last report
  long step_ = 0;
};

}  // namespace troupe::train::internal
