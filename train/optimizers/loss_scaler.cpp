#include "troupe/train/optimizers/loss_scaler.hpp"

#include "troupe/train/internal/reject.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe::train {
namespace {

using internal::require;

bool is_scale(float value) {
  return std::isfinite(value) && value > 0;
}

}  // namespace

void check(const LossScalerOptions& options) {
  require(is_scale(options.initial), "LossScalerOptions.initial must be positive and finite");
  require(std::isfinite(options.growth) && options.growth > 1,
          "LossScalerOptions.growth must be above 1 and finite");
  require(options.backoff > 0 && options.backoff < 1,
          "LossScalerOptions.backoff must be above 0 and below 1");
  require(options.interval >= 1, "LossScalerOptions.interval must be at least 1");
}

LossScaler::LossScaler(const LossScalerOptions& options) : options_(options) {
  check(options_);
  reset();
}

void LossScaler::update(bool finite) noexcept {
  if (!finite) {
    now_ = {std::max(now_.scale * options_.backoff, std::numeric_limits<float>::min()), 0};
    return;
  }
  if (++now_.good_steps < options_.interval) return;
  now_.good_steps = 0;
  const float grown = now_.scale * options_.growth;
  if (std::isfinite(grown)) now_.scale = grown;
}

void LossScaler::restore(const LossScale& state) {
  require(is_scale(state.scale), "a loss scale must be positive and finite");
  require(state.good_steps >= 0, "a loss scale's good steps cannot be below 0");
  now_ = state;
}

void LossScaler::reset() noexcept {
  now_ = {options_.initial, 0};
}

}  // namespace troupe::train
