/// exchange(): brings each whole tensor of a staged state to the rank that writes it.
#pragma once

#include "troupe/actors/collective/communicator.hpp"
#include "troupe/runtime/base/units.hpp"
#include "troupe/train/checkpoint/folder/staged_state.hpp"

#include <functional>

namespace troupe::train {

/// Gets a whole tensor, row-major in f32. The bytes are valid during the call.
using TensorSink = std::function<void(const StagedTensor& tensor, BlobView bytes)>;

/// Assembles the tensors in the plan's order and hands this rank's to `sink`. Holds one whole
/// tensor and one shard of it at a time. A tensor that this rank staged whole does not travel, and
/// no bytes of it are copied. `rank` is the rank in the mesh, and in the group. Every rank of the
/// plan calls it, and it blocks. `group` is null for one rank. Throws the errors of the group.
TROUPE_API void exchange(const StagedState& staged, int rank, collective::Communicator* group,
                         const TensorSink& sink);

}  // namespace troupe::train
