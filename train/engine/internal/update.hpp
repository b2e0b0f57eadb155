/// Update: applies the optimizer to what this rank owns, and publishes the new weights to all
/// ranks.
#pragma once

#include "troupe/train/engine/internal/parts.hpp"

#include <cstdint>
#include <memory>

namespace troupe::train::internal {

class Update {
 public:
  explicit Update(Parts& parts);
  ~Update();

  /// Updates unit by unit. Every rank calls it. Weights of other owners may still be in transit
  /// when it returns; the store waits for them when they are read. `step` counts from 1.
  void apply(float rate, std::int64_t step, float gradient_scale);

  /// The step at which all moments were 0. The optimizer counts steps from it, since AdamW
  /// corrects for moments that began at 0.
  std::int64_t moments_since() const noexcept { return moments_since_; }
  void begin_moments(std::int64_t step) noexcept { moments_since_ = step; }

 private:
  /// Updates one unit on the host, for offloaded optimizer state: copies gradients to the host,
  /// and weights there and back.
  class OnHost;

  Parts* parts_;
  std::unique_ptr<OnHost> on_host_;  // none without offload
  std::int64_t moments_since_ = 0;
};

}  // namespace troupe::train::internal
