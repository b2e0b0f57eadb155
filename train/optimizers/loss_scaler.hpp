/// LossScaler: the loss scale of an f16 run. It multiplies the loss, so that small gradients do
/// not underflow in f16 (Micikevicius et al. 2018, section 3.2). A plain state machine; its rule
/// is that of torch.amp.GradScaler.
///
///     LossScaler scaler;
///     backward(scaler.scale());              // gradients are that many times too large
///     const bool good = std::isfinite(norm / scaler.scale());
///     if (good) update(1 / scaler.scale());  // else the step is left out
///     scaler.update(good);
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <cstdint>

namespace troupe::train {

struct LossScalerOptions {
  float initial = 65536;
  float growth = 2;              ///< factor after `interval` good steps in a row
  float backoff = 0.5f;          ///< factor after a step whose gradients are not finite
  std::int64_t interval = 2000;  ///< steps
};

/// Throws InvalidArgument, naming the member, unless initial is positive and finite, growth above
/// 1 and finite, backoff in (0, 1) and interval at least 1.
TROUPE_API void check(const LossScalerOptions& options);

/// The state of a scaler, which snapshots keep.
struct LossScale {
  float scale = 65536;
  std::int64_t good_steps = 0;  ///< in a row, since the scale last changed
  friend bool operator==(const LossScale&, const LossScale&) = default;
};

class TROUPE_API LossScaler {
 public:
  /// Throws as check().
  explicit LossScaler(const LossScalerOptions& options = {});

  float scale() const noexcept { return now_.scale; }
  const LossScale& state() const noexcept { return now_; }
  /// Adjusts the scale after a step; `finite` tells whether all of its gradients were finite. The
  /// scale stays finite and above 0: it neither grows past the largest float nor shrinks below
  /// the smallest normal one.
  void update(bool finite) noexcept;
  /// Throws InvalidArgument for a scale that is not positive and finite, or a negative count.
  void restore(const LossScale& state);
  /// Returns to the initial scale.
  void reset() noexcept;

 private:
  LossScalerOptions options_;
  LossScale now_;
};

}  // namespace troupe::train
