/// A tensor that the first and the last rank of a pipeline share (Narayanan et al. 2021, section
/// 2.2): the last one has a copy of the weights and the gradient of its uses, the first one updates.
#pragma once

#include "troupe/train/engine/internal/parts.hpp"
#include "troupe/train/engine/internal/reductions.hpp"

#include <vector>

namespace troupe::train::internal {

/// Does nothing on other ranks and for models that share nothing over ranks. Both calls are made by
/// all ranks and block for the other end; they throw errors of the group.
class Ties {
 public:
  explicit Ties(Parts& parts);

  /// Behind the last backward pass of the step: gradients go from the last rank to the first, whose
  /// units are whole then.
  void reduce(Reductions& reductions);
  /// Behind every change of the first rank's weights: the copies become them.
  void publish();

 private:
  collective::Terms terms() const;

  Parts* parts_;
  std::vector<TensorId> uses_;     // gradients that are sent, or received
  std::vector<TensorId> tensors_;  // weights that are received, or sent
};

}  // namespace troupe::train::internal
