// Tests counter-based random numbers, and the mode that flushes subnormal numbers.
#include "troupe/kernels/philox/philox.hpp"

#include "troupe/kernels/denormals/denormals.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace troupe::kernels {
namespace {

TEST(Philox, KnownAnswers) {
  using Block = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, NormalDependsOnTheElementAlone) {
  std::vector<float> whole(1001), parts(1001);
  philox_normal(whole.data(), 1001, 7, 3, 0, 0, 1);
  philox_normal(parts.data(), 333, 7, 3, 0, 0, 1);
  philox_normal(parts.data() + 333, 668, 7, 3, 333, 0, 1);
  EXPECT_EQ(whole, parts);
}

TEST(Philox, NormalHasItsMoments) {
  constexpr int n = 100000;
  std::vector<float> x(n);
  philox_normal(x.data(), n, 42, 0, 0, 1.0f, 2.0f);
  double mean = 0, square = 0;
  for (const float value : x) mean += value / n;
  for (const float value : x) square += (value - mean) * (value - mean) / n;
  EXPECT_NEAR(mean, 1, 0.03);
  EXPECT_NEAR(square, 4, 0.08);
}

TEST(Philox, UniformFillsItsRange) {
  float low = 1, high = 0;
  for (std::uint64_t i = 0; i < 10000; ++i) {
    const float u = philox_uniform(1, 0, i);
    low = std::min(low, u);
    high = std::max(high, u);
  }
  EXPECT_GE(low, 0.0f);
  EXPECT_LT(low, 0.001f);
  EXPECT_LT(high, 1.0f);
  EXPECT_GT(high, 0.999f);
}

TEST(Denormals, AreZeroInsideTheScopeOnly) {
  volatile float tiny = 1e-30f, factor = 1e-10f;
  EXPECT_NE(tiny * factor, 0.0f);
  {
    const FlushDenormals flush;
    EXPECT_EQ(tiny * factor, 0.0f);
  }
  EXPECT_NE(tiny * factor, 0.0f);
}

}  // namespace
}  // namespace troupe::kernels
