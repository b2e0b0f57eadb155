// Tests bytes per rank and bytes on the wire, to the byte.
#include "tests/train/engine/ranks.hpp"
#include "troupe/train/params/plan.hpp"

#include <algorithm>

namespace troupe::train::testing {
namespace {

/// Sizes that four ranks divide, so that no byte is lost to rounding.
constexpr GptShape kShape{.vocabulary = 64, .context = 16, .layers = 3, .heads = 2, .channels = 32};

struct Counted {
  std::uint64_t payload = 0;
  std::int64_t parameters = 0;
  std::uint64_t planned = 0;
  Engine::Bytes bytes;
  std::int64_t largest_units = 0;  ///< bytes of the three largest
};

/// Returns the numbers of rank 0: memory after the first step, traffic of the second.
Counted count(const Layout& layout) {
  Counted counted;
  on_ranks(layout.dp, Wire::local, [&](RankContext& context) {
    Engine engine(gpt(kShape), layout, context.mesh, context.device, {.rate = 1e-3f});
    engine.initialize(1);
    const auto step = [&](int number) {
      std::vector<Rows> parts =
          share_of(kShape, number, 8, context.mesh.dp_rank, layout.dp, layout.micro);
      engine.step(micros_of(parts));
    };
    const auto payload = [&] {
      engine.weights_hash();  // waits for operations that the step left under way
      return context.mesh.dp->traffic().payload();
    };
    step(0);
    const Engine::Bytes bytes = engine.bytes();
    payload();
    const std::uint64_t before = payload(), hash = payload() - before;
    const std::uint64_t start = context.mesh.dp->traffic().payload();
    step(1);
    const std::uint64_t end = payload();
    if (context.mesh.dp_rank != 0) return;
    counted.payload = end - start - hash;
    counted.parameters = engine.index().parameter_count();
    counted.planned =
        plan(engine.index(), layout, [](const Layout&) { return 0; }).traffic.payload();
    counted.bytes = bytes;
    std::vector<std::int64_t> sizes;
    for (const UnitPlace& unit : engine.index().units()) sizes.push_back(unit.size * 4);
    std::sort(sizes.rbegin(), sizes.rend());
    counted.largest_units = sizes[0] + sizes[1] + sizes[2];
  });
  return counted;
}

class Payload : public ::testing::TestWithParam<std::pair<int, int>> {};

TEST_P(Payload, IsTheFormulaForEveryLayout) {
  const auto [dp, m] = GetParam();
  const auto part = [dp = dp](std::int64_t bytes) {
    return static_cast<std::uint64_t>(bytes * (dp - 1) / dp);
  };
  for (const int zero : {0, 1, 2, 3}) {
    const Counted counted = count({.dp = dp, .zero = zero, .micro = m});
    const std::int64_t p = 4 * counted.parameters;
    SCOPED_TRACE("zero = " + std::to_string(zero));
    EXPECT_EQ(counted.payload, counted.planned);
    if (zero < 3) {
      EXPECT_EQ(counted.payload, part((zero == 2 ? m + 1 : 2) * p));
      continue;
    }
    // Forward, backward and reduction move all weights once each, without the units that stay
    // between passes and the tied embedding.
    EXPECT_LE(counted.payload, part((3 * m + 1) * p));
    EXPECT_GE(counted.payload, part((3 * m - 1) * p));
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Payload,
                         ::testing::Values(std::pair{2, 1}, std::pair{2, 3}, std::pair{4, 2}));

TEST(Bytes, PerRankAreTheFormulasAndThePadding) {
  const int n = 4;
  for (const int zero : {0, 1, 2, 3}) {
    const Counted counted = count({.dp = n, .zero = zero});
    SCOPED_TRACE("zero = " + std::to_string(zero));
    const std::int64_t p = counted.parameters;
    const std::int64_t formulas[] = {16 * p, 8 * p + 8 * p / n, 4 * p + 12 * p / n, 16 * p / n};
    const Store::Bytes& store = counted.bytes.store;
    EXPECT_EQ(store.weights + store.gradients + store.moments + store.tied - store.padding,
              formulas[zero] + 4 * kShape.vocabulary * kShape.channels);
    EXPECT_GE(store.padding, 0);
    EXPECT_LE(store.padding, 16 * 1024 * n * 5);  // at most a chunk of every owner in five units
  }
}

// At most three slabs of gradients are in flight. With zero = 3 there are also the weights of a
// layer, of the next one, and the tied embedding.
TEST(Bytes, InFlightAreBounded) {
  EXPECT_EQ(count({.dp = 2, .zero = 1}).bytes.store.peak_transient, 0);
  const Counted two = count({.dp = 2, .zero = 2, .micro = 2});
  EXPECT_GT(two.bytes.store.peak_transient, 0);
  EXPECT_LE(two.bytes.store.peak_transient, two.largest_units);
  const Counted three = count({.dp = 2, .zero = 3, .micro = 2});
  EXPECT_LE(three.bytes.store.peak_transient, 2 * three.largest_units);
}

TEST(Bytes, RecomputationAndMicroBatchesKeepLessActivations) {
  const auto activations = [](const Layout& layout) { return count(layout).bytes.activations; };
  const std::int64_t all = activations({.dp = 2});
  EXPECT_LT(activations({.dp = 2, .recompute = Recompute::full}), all * 2 / 3);
  EXPECT_LT(activations({.dp = 2, .micro = 2}), all);
}

}  // namespace
}  // namespace troupe::train::testing
