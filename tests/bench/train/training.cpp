#include "training.hpp"

#include "troupe/kernels/denormals/denormals.hpp"
#include "troupe/kernels/philox/philox.hpp"
#include "troupe/runtime/base/error.hpp"
#include "troupe/train/models/models.hpp"

#include <sched.h>
#include <charconv>

namespace troupe::bench {
namespace {

constexpr std::int64_t kVocabulary = 256;

train::Model model_of(const TrainShape& shape) {
  return train::models::gpt2({.vocabulary = kVocabulary,
                              .context = shape.context,
                              .layers = shape.layers,
                              .heads = shape.heads(),
                              .channels = shape.channels});
}

std::vector<std::int32_t> tokens(std::int64_t count, std::uint64_t stream) {
  std::vector<std::int32_t> result(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = static_cast<std::int32_t>(kernels::philox_bits(1, stream, i) % kVocabulary);
  return result;
}

}  // namespace

TrainShape shape_of(std::string_view text) {
  TrainShape shape;
  const char* next = text.data();
  const char* const end = next + text.size();
  for (std::int64_t* size : {&shape.layers, &shape.channels, &shape.context, &shape.batch}) {
    const auto [rest, error] = std::from_chars(next, end, *size);
    const bool is_last = size == &shape.batch;
    if (error != std::errc() || *size <= 0 || (is_last ? rest != end : rest == end || *rest != 'x'))
      throw InvalidArgument(Code::invalid_argument,
                            "a shape is LAYERSxCHANNELSxCONTEXTxBATCH, like 4x128x64x12, not '" +
                                std::string(text) + "'");
    next = rest + 1;
  }
  return shape;
}

void pin_to_cpus(int first, int count) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int cpu = first; cpu < first + count; ++cpu) CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);  // with fewer CPUs, it measures where it can
}

Training::Training(const TrainShape& shape, int threads, const train::Layout& layout,
                   collective::Mesh& mesh)
    : shape_(shape),
      device_(kernels::cpu_device({.threads = threads})),
      engine_(std::make_unique<train::Engine>(model_of(shape), layout, mesh, device_,
                                              train::OptimizerOptions{.rate = 1e-4f})),
      inputs_(tokens(shape.batch * shape.context, 1)),
      targets_(tokens(shape.batch * shape.context, 2)) {
  engine_->initialize(1);
}

train::StepResult Training::step() {
  const std::int64_t parts = engine_->layout().micro, rows = shape_.batch / parts;
  std::vector<train::MicroBatch> micros;
  for (std::int64_t first = 0; first < rows * parts; first += rows) {
    const train::Shape size{rows, shape_.context};
    const auto at = static_cast<std::size_t>(first * shape_.context);
    micros.push_back({.input = {inputs_.data() + at, kernels::DType::i32, size},
                      .targets = {targets_.data() + at, kernels::DType::i32, size}});
  }
  return engine_->step(micros);
}

}  // namespace troupe::bench
