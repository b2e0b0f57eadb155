/// One rank that trains a GPT-2 on random tokens, for the benchmarks of training.
///
///     collective::Mesh alone;
///     Training training(shape_of("4x128x64x12"), /*threads=*/1, {}, alone);
///     training.step();
#pragma once

#include "troupe/train/engine/engine.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::bench {

struct TrainShape {
  std::int64_t layers = 4, channels = 128, context = 64, batch = 12;
  /// 32 channels per head in small models, 64 from 384 channels on.
  std::int64_t heads() const noexcept { return channels / (channels < 384 ? 32 : 64); }
};
/// Parses a text like "4x128x64x12". Throws InvalidArgument.
TrainShape shape_of(std::string_view text);

/// Restricts the calling thread, and threads that it starts later, to these CPUs.
void pin_to_cpus(int first, int count);

class Training {
 public:
  /// Trains as a rank of the layout's mesh, which outlives this object. Precondition: layout.micro
  /// divides the batch.
  Training(const TrainShape& shape, int threads, const train::Layout& layout,
           collective::Mesh& mesh);
  train::StepResult step();
  std::string device() const { return device_.name(); }
  train::Engine& engine() noexcept { return *engine_; }

 private:
  TrainShape shape_;
  kernels::Device device_;
  std::unique_ptr<train::Engine> engine_;
  std::vector<std::int32_t> inputs_, targets_;
};

}  // namespace troupe::bench
