#include "troupe/train/optimizers/optimizer.hpp"

#include "troupe/train/internal/reject.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::train {
namespace {

using internal::reject;

/// Throws unless the value is finite and in [least, most).
void check_number(const char* name, double value, double least, double most) {
  if (std::isfinite(value) && value >= least && value < most) return;
  reject("OptimizerOptions." + std::string(name) + " is " + std::to_string(value) +
         "; it must be at least " + std::to_string(least) +
         (std::isfinite(most) ? " and below " + std::to_string(most) : " and finite"));
}

/// The part of a tensor that a rank owns.
struct Segment {
  std::int64_t first = 0;  // from the first owned element
  std::int64_t count = 0;
  bool decay = false;
};

Segment segment_of(const TensorPlace& tensor, const Range& owned) {
  const std::int64_t first = std::max(tensor.offset, owned.first);
  const std::int64_t end = std::min(tensor.offset + tensor.local.count(), owned.end());
  return {first - owned.first, end - first, tensor.group == Group::decay};
}

void update_segment(kernels::Device& device, const Store::Owned& owned, const Segment& segment,
                    const OptimizerOptions& options, float rate, std::int64_t step, float scale) {
  const float decay = segment.decay || options.decay_all ? options.decay : 0.0f;
  const auto at = [&](float* slab) { return slab == nullptr ? nullptr : slab + segment.first; };
  if (options.kind == OptimizerKind::adamw)
    device.kernels().adamw(device.compute(), {.n = segment.count,
                                              .weights = at(owned.weights),
                                              .m = at(owned.moments[0]),
                                              .v = at(owned.moments[1]),
                                              .gradients = at(owned.gradients),
                                              .rate = rate,
                                              .beta1 = options.beta1,
                                              .beta2 = options.beta2,
                                              .epsilon = options.epsilon,
                                              .decay = decay,
                                              .gradient_scale = scale,
                                              .step = step});
  else
    device.kernels().sgd(device.compute(), {.n = segment.count,
                                            .weights = at(owned.weights),
                                            .m = at(owned.moments[0]),
                                            .gradients = at(owned.gradients),
                                            .rate = rate,
                                            .momentum = options.momentum,
                                            .decay = decay,
                                            .nesterov = options.nesterov,
                                            .gradient_scale = scale,
                                            .first = step == 1});
}

}  // namespace

void check(const OptimizerOptions& options) {
  constexpr double kAny = HUGE_VAL;
  check_number("rate", options.rate, 0, kAny);
  check_number("beta1", options.beta1, 0, 1);
  check_number("beta2", options.beta2, 0, 1);
  check_number("epsilon", options.epsilon, 0, kAny);
  if (options.epsilon == 0) reject("OptimizerOptions.epsilon is 0; it must be positive");
  check_number("momentum", options.momentum, 0, 1);
  check_number("decay", options.decay, 0, kAny);
  check_number("max_norm", options.max_norm, 0, kAny);
  check(options.loss_scaler);
  if (options.nesterov && options.momentum == 0)
    reject("OptimizerOptions.nesterov needs a momentum above 0");
}

void update_owned(kernels::Device& device, const Index& index, int unit, const Store::Owned& owned,
                  const OptimizerOptions& options, float rate, std::int64_t step,
                  float gradient_scale) {
  for (const TensorId id : index.units().at(static_cast<std::size_t>(unit)).tensors) {
    const Segment segment = segment_of(index[id], owned.range);
    if (segment.count > 0)
      update_segment(device, owned, segment, options, rate, step, gradient_scale);
  }
}

}  // namespace troupe::train
