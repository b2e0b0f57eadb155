/// micro_batches(): cuts a batch of text into micro-batches for Engine::step().
///
///     Batch batch = data.batch(sampler.next(mesh.dp_rank, dp));
///     engine.step(micro_batches(batch, layout.micro));
#pragma once

#include "troupe/train/engine/engine.hpp"
#include "troupe/train/text.hpp"

#include <vector>

namespace troupe::train {

/// Returns the batch in consecutive parts whose sizes differ by at most one row. Some parts are
/// empty when the batch has fewer rows than parts. They borrow the batch's memory. Throws
/// InvalidArgument for parts < 1.
TROUPE_API std::vector<MicroBatch> micro_batches(Batch& batch, int parts);

}  // namespace troupe::train
