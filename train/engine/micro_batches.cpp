#include "troupe/train/engine/micro_batches.hpp"

#include "troupe/train/internal/reject.hpp"

namespace troupe::train {

std::vector<MicroBatch> micro_batches(Batch& batch, int parts) {
  internal::require(parts >= 1, "a batch has at least one part");
  std::vector<MicroBatch> micros;
  for (int i = 0; i < parts; ++i) {
    const std::int64_t first = batch.rows * i / parts, end = batch.rows * (i + 1) / parts;
    const Shape shape{end - first, batch.time};
    micros.push_back({.input = {batch.inputs.data() + first * batch.time, DType::i32, shape},
                      .targets = {batch.targets.data() + first * batch.time, DType::i32, shape}});
  }
  return micros;
}

}  // namespace troupe::train
