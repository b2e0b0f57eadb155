/// A tensor's whole out of the shards of tensor-parallel ranks, and back.
///
///     add_shard(tensor, tp_rank, values_of_that_rank, whole);
///     take_shard(tensor, whole, values_of_this_rank);
#pragma once

#include "troupe/train/params/index.hpp"

#include <span>

namespace troupe::train {

/// Writes what rank `index` of the tensor's shard has into the whole tensor. Elements that pad the
/// shard are left out. Pure.
TROUPE_API void add_shard(const TensorPlace& tensor, int index, std::span<const float> local,
                          std::span<float> whole);
/// This rank's shard of the whole tensor; padding is zero. Pure.
TROUPE_API void take_shard(const TensorPlace& tensor, std::span<const float> whole,
                           std::span<float> local);

}  // namespace troupe::train
