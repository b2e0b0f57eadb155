/// Assembles whole tensors from the shards of tensor-parallel ranks, and cuts shards from them.
///
///     add_shard(tensor, tp_rank, values_of_that_rank, whole);
///     take_shard(tensor, whole, values_of_this_rank);
#pragma once

#include "troupe/train/params/index.hpp"

#include <span>

namespace troupe::train {

/// Writes the shard of rank `index` into the whole tensor, without the elements that pad the
/// shard. A pure function.
TROUPE_API void add_shard(const TensorPlace& tensor, int index, std::span<const float> local,
                          std::span<float> whole);
/// Writes this rank's shard of the whole tensor to `local`; padding becomes zero. A pure
/// function.
TROUPE_API void take_shard(const TensorPlace& tensor, std::span<const float> whole,
                           std::span<float> local);

}  // namespace troupe::train
