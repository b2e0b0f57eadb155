/// Gradients of replicated tensors of which every tensor-parallel rank has a part
/// (TensorShard::partial).
#pragma once

#include "troupe/train/params/store.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace troupe::train::internal {

/// Sums them over the ranks: one message a unit (Korthikanti et al. 2022, section 4.2.2).
class Partials {
 public:
  /// `tp` may be null: there is nothing to do then.
  Partials(Store& store, kernels::Device& device, collective::Communicator* tp);

  /// Replaces the unit's partial gradients by their sums. They must have begun. Every rank of tp
  /// calls it; throws errors of the group.
  void sum(int unit);

 private:
  /// Of a gradient slab: the tensors whose gradients are partial.
  using Ranges = std::vector<Range>;

  /// The ranges one after the other in packed_, or back from there.
  void pack(float* slab, const Ranges& ranges);
  void unpack(float* slab, const Ranges& ranges);
  void copy(float* to, const float* from, std::int64_t count);

  Store* store_;
  kernels::Device* device_;
  collective::Communicator* tp_;
  std::vector<Ranges> units_;
  kernels::Memory packed_;
};

}  // namespace troupe::train::internal
