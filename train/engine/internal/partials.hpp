/// Partials: sums partial gradients over tensor-parallel ranks. A gradient is partial when its
/// tensor is replicated and each rank has computed a part of the sum (TensorShard::partial).
#pragma once

#include "troupe/train/params/store.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace troupe::train::internal {

/// One all-reduce for each unit (Korthikanti et al. 2022, section 4.2.2).
class Partials {
 public:
  /// `tp` may be null; then sum() does nothing.
  Partials(Store& store, kernels::Device& device, collective::Communicator* tp);

  /// Replaces the unit's partial gradients by their sums. Call it when gradients of the unit have
  /// begun. Every rank of tp calls it. Throws errors of the group.
  void sum(int unit);

 private:
  /// The tensors of a gradient slab whose gradients are partial.
  using Ranges = std::vector<Range>;

  /// Copies the ranges side by side into packed_ (pack), or back (unpack).
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
