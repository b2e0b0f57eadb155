/// Ties: shares a tensor, such as a tied embedding, between the first and the last rank of a
/// pipeline (Narayanan et al. 2021, section 2.2). The last rank has a copy of the weights and the
/// gradients of its uses; the first rank updates the weights.
#pragma once

#include "troupe/train/engine/internal/parts.hpp"
#include "troupe/train/engine/internal/reductions.hpp"

#include <vector>

namespace troupe::train::internal {

/// Does nothing on other ranks, and for models without shared tensors. All ranks make both calls.
/// On the two ranks, calls block for each other and throw errors of the group.
class Ties {
 public:
  explicit Ties(Parts& parts);

  /// Sends gradients from the last rank to the first, whose units are complete then. Call it
  /// after the last backward pass of the step.
  void reduce(Reductions& reductions);
  /// Sends the first rank's new weights to the copies. Call it after every change of the weights.
  void publish();

 private:
  collective::Terms terms() const;

  Parts* parts_;
  std::vector<TensorId> uses_;     // tensors whose gradients are sent or received
  std::vector<TensorId> tensors_;  // tensors whose weights are received or sent
};

}  // namespace troupe::train::internal
