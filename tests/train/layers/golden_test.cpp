// Tests the first step of the golden run, by layers: loss and gradient norm against a float64 run
// of another framework.
#include "tests/golden/golden_run.hpp"
#include "tests/paths.hpp"
#include "troupe/train/layers/internal/workbench.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace troupe::train {
namespace {

using internal::Workbench;

struct GoldenStep {
  Model model = golden::model();
  Workbench bench;

  GoldenStep(DType type, Recompute recompute)
      : bench(pointers(), {.layout = {.compute = type, .recompute = recompute},
                           .input = {DType::i32, {4, 32}}}) {
    bench.initialize();
    for (const TensorId id : bench.tensors()) {
      const TensorPlace& tensor = bench.index()[id];
      if (tensor.global.rank() < 2) continue;  // norms stay 1 and biases 0
      const golden::Place place = golden::place_of(tensor.name);
      const auto count = static_cast<std::uint32_t>(tensor.global.count());
      for (std::uint32_t i = 0; i < count; ++i)
        internal::set_number(bench.weights(id), i,
                             golden::value(place.tensor, place.layer * count + i));
    }
    const std::vector<std::int32_t> ids = golden::Text(paths::golden()).ids();
    const std::int64_t tokens = golden::kRows * golden::kContext;
    std::copy_n(ids.begin(), tokens, bench.input().as<std::int32_t>());
    std::copy_n(ids.begin() + 1, tokens, bench.targets().as<std::int32_t>());
  }
  std::vector<Layer*> pointers() const {
    std::vector<Layer*> all;
    for (const auto& layer : model) all.push_back(layer.get());
    return all;
  }
  /// The bench divides by three targets more than there are; this undoes it.
  static constexpr double kShare = 131.0 / 128.0;
  double loss() { return bench.forward() * kShare; }
  double norm() {
    bench.fill_gradients(0);
    bench.backward();
    double squares = 0;
    for (const TensorId id : bench.tensors())
      for (const double g : bench.whole_gradient(id)) squares += g * g;
    return std::sqrt(squares) * kShare;
  }
};

class Golden : public testing::TestWithParam<std::pair<DType, Recompute>> {};

TEST_P(Golden, FirstStepHasTheLossAndTheNormOfTheOtherFramework) {
  const auto [type, recompute] = GetParam();
  const double tolerance = type == DType::f64 ? 2e-9 : 1e-6;
  GoldenStep step(type, recompute);
  EXPECT_EQ(step.bench.index().parameter_count(), golden::kParameters);
  EXPECT_NEAR(step.loss() / golden::kLosses[0], 1, tolerance);
  EXPECT_NEAR(step.norm() / golden::kNorms[0], 1, tolerance);
}

INSTANTIATE_TEST_SUITE_P(Types, Golden,
                         testing::Values(std::pair(DType::f64, Recompute::none),
                                         std::pair(DType::f32, Recompute::none),
                                         std::pair(DType::f32, Recompute::selective)));

}  // namespace
}  // namespace troupe::train
