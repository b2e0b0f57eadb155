/// The update of what this rank owns, and the new weights to all ranks.
#pragma once

#include "troupe/train/engine/internal/parts.hpp"

#include <memory>

namespace troupe::train::internal {

class Update {
 public:
  explicit Update(Parts& parts);
  ~Update();

  /// Unit by unit; every rank calls it. Weights of others are under way when it returns: the store
  /// waits for them where they are read. `step` counts from 1.
  void apply(float rate, std::int64_t step, float gradient_scale);

 private:
  /// One unit's update with its numbers on the host: gradients are copied out, weights both ways.
  class OnHost;

  Parts* parts_;
  std::unique_ptr<OnHost> on_host_;  // none without offload
};

}  // namespace troupe::train::internal
