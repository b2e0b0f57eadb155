// Each operation of a device at GPT-2's shapes: what it has to move or to multiply.
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
/// GPT-2 of 124M parameters; and one so small that a CPU makes all of it in a second.
inline constexpr Sizes kGpt2{};
inline constexpr Sizes kTiny{
    .batch = 2, .time = 8, .heads = 2, .channels = 16, .vocabulary = 33, .parameters = 3000};

/// One operation that is ready to be enqueued. Either bytes or flops are there.
struct Case {
  std::function<void()> call;
  double bytes = 0;  ///< that it reads and writes at least
  double flops = 0;
  std::optional<kernels::Gemm> product;  ///< the same without bias and activation
  bool is_judged = true;                 ///< whether a bar stands for it
};
struct NamedCase {
  std::string name;
  std::function<Case(Room&)> make;
};

/// All of them, for a type of activations.
std::vector<NamedCase> cases(kernels::Device& device, const Sizes& sizes, kernels::DType type);

}  // namespace troupe::gpu
