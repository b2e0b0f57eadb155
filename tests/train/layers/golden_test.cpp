// The first step of the golden run, by layers: loss and gradient norm against a float64 run of
// another framework.
#include "troupe/train/layers/internal/workbench.hpp"
#include "troupe/train/models/models.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <string>

namespace troupe::train {
namespace {

using internal::Workbench;

std::string golden(const std::string& name) {
  std::ifstream in(std::string(TROUPE_GOLDEN "/") + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

double golden_value(std::uint32_t tensor, std::uint32_t element) {
  std::uint32_t h = element * 2654435761u + tensor * 40503u + 12345u;
  h = (h ^ (h >> 15)) * 2246822519u;
  h ^= h >> 13;
  return (h / 4294967296.0 - 0.5) * 0.1;
}

/// The run's number of a matrix; it counts all tensors in the order of the layers.
std::uint32_t number_of(const std::string& name) {
  const std::pair<const char*, std::uint32_t> numbers[] = {
      {"wte.weight", 0},         {"wpe.weight", 1},       {"attn.c_attn.weight", 4},
      {"attn.c_proj.weight", 6}, {"mlp.c_fc.weight", 10}, {"mlp.c_proj.weight", 12}};
  for (const auto& [ending, number] : numbers)
    if (name.ends_with(ending)) return number;
  ADD_FAILURE() << "the golden run has no matrix " << name;
  return 0;
}

/// Per-layer tensors are stacked: the second layer's elements follow the first's.
std::int64_t layer_of(const std::string& name) {
  return name.starts_with("transformer.h.1.") ? 1 : 0;
}

struct GoldenStep {
  Model model =
      models::gpt2({.vocabulary = 65, .context = 32, .layers = 2, .heads = 2, .channels = 32});
  Workbench bench;

  GoldenStep(DType type, Recompute recompute)
      : bench(pointers(), {.layout = {.compute = type, .recompute = recompute},
                           .input = {DType::i32, {4, 32}}}) {
    bench.initialize();
    for (const TensorId id : bench.tensors()) {
      const TensorPlace& place = bench.index()[id];
      if (place.global.rank() < 2) continue;  // norms are 1 and biases 0
      const std::int64_t count = place.global.count(), first = layer_of(place.name) * count;
      for (std::int64_t i = 0; i < count; ++i)
        internal::set_number(
            bench.weights(id), i,
            golden_value(number_of(place.name), static_cast<std::uint32_t>(first + i)));
    }
    const std::string text = golden("tinyshakespeare-1281.txt");
    const std::string alphabet = golden("tinyshakespeare-65.txt");
    for (std::size_t i = 0; i < 128; ++i) {
      bench.input().as<std::int32_t>()[i] = static_cast<std::int32_t>(alphabet.find(text[i]));
      bench.targets().as<std::int32_t>()[i] = static_cast<std::int32_t>(alphabet.find(text[i + 1]));
    }
  }
  std::vector<Layer*> pointers() const {
    std::vector<Layer*> all;
    for (const auto& layer : model) all.push_back(layer.get());
    return all;
  }
  /// The bench divides by three targets more than there are.
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
  EXPECT_EQ(step.bench.index().parameter_count(), 28576);
  EXPECT_NEAR(step.loss() / 4.220803823, 1, tolerance);
  EXPECT_NEAR(step.norm() / 1.688320960, 1, tolerance);
}

INSTANTIATE_TEST_SUITE_P(Types, Golden,
                         testing::Values(std::pair(DType::f64, Recompute::none),
                                         std::pair(DType::f32, Recompute::none),
                                         std::pair(DType::f32, Recompute::selective)));

}  // namespace
}  // namespace troupe::train
