// The cases of the benchmark: each operation of a device at GPT-2's shapes, with the bytes it
// must move or the operations it must compute.
#pragma once

#include "tests/gpu/bench/measure.hpp"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace troupe::gpu {

struct Sizes {
  std::int64_t batch = 8, time = 1024, heads = 12, channels = 768, vocabulary = 50257;
  std::int64_t parameters = 124439808;
  std::int64_t rows() const noexcept { return batch * time; }
};
/// The shapes of GPT-2 with 124M parameters, and shapes so small that a CPU runs all cases in a
/// second.
inline constexpr Sizes kGpt2{};
inline constexpr Sizes kTiny{
    .batch = 2, .time = 8, .heads = 2, .channels = 16, .vocabulary = 33, .parameters = 3000};

/// One operation that is ready to be enqueued. It has either `bytes` or `flops`.
struct Case {
  std::function<void()> call;
  double bytes = 0;  ///< the least that it reads and writes
  double flops = 0;
  std::optional<kernels::Gemm> product;  ///< the same product without bias and activation
  bool is_judged = true;                 ///< whether a bar applies to it
};
struct NamedCase {
  std::string name;
  std::function<Case(Room&)> make;
};

/// Returns all cases for a type of activations.
std::vector<NamedCase> cases(kernels::Device& device, const Sizes& sizes, kernels::DType type);

}  // namespace troupe::gpu
