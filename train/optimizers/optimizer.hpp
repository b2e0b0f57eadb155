/// Optimizers (AdamW, SGD) over the owned ranges of slabs.
///
///     OptimizerOptions options{.kind = OptimizerKind::adamw, .rate = 3e-4f};
///     update_owned(device, index, unit, store.owned(unit), options, options.rate, step, clip);
#pragma once

#include "troupe/kernels/device/device.hpp"
#include "troupe/train/optimizers/loss_scaler.hpp"
#include "troupe/train/params/index.hpp"
#include "troupe/train/params/store.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace troupe::train {

enum class OptimizerKind : std::uint8_t { adamw, sgd };

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adamw;
  float rate = 1e-3f;  ///< learning rate; StepOptions::rate overrides it for a step
  float beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f;  ///< AdamW
  float momentum = 0;                                  ///< SGD
  bool nesterov = false;
  float decay = 0.1f;
  bool decay_all = false;              ///< also tensors of Group::no_decay
  double max_norm = 1.0;               ///< for clipping the gradient; 0: no clipping
  LossScalerOptions loss_scaler = {};  ///< for Layout::compute = f16; otherwise unused

  /// Returns how many moments it keeps for each weight.
  int moments() const noexcept {
    return kind == OptimizerKind::adamw ? 2 : (momentum == 0 ? 0 : 1);
  }
};

/// Throws InvalidArgument, naming the member, for values out of range.
TROUPE_API void check(const OptimizerOptions& options);

/// Updates the part of a unit that this rank owns. `step` counts from 1. A tensor that only
/// partly lies in the range is updated in part. Padding stays zero.
TROUPE_API void update_owned(kernels::Device& device, const Index& index, int unit,
                             const Store::Owned& owned, const OptimizerOptions& options, float rate,
                             std::int64_t step, float gradient_scale);

}  // namespace troupe::train
