// AdamW over a slab, the clip, the schedules and the hash.
#include "troupe/runtime/base/error.hpp"
#include "troupe/train/adamw.hpp"
#include "troupe/train/hash.hpp"
#include "troupe/train/schedule.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace troupe::train {
namespace {

ParameterMap two_tensors() {
  ParameterMap map;
  map.add("matrix", {2, 2}, true);
  map.add("bias", {3}, false);
  map.seal({.pad = 16});
  return map;
}

TEST(Optimizer, DecaysMatricesOnlyAndLeavesPaddingAlone) {
  const ParameterMap map = two_tensors();
  std::vector<float> p(static_cast<std::size_t>(map.size()), 1.0f), g(p.size(), 0.0f);
  AdamW optimizer(map.size());
  EXPECT_EQ(optimizer.update(map, p, g, {.rate = 0.1f, .decay = 0.5f}), 0);
  for (std::size_t i = 0; i < p.size(); ++i)
    EXPECT_EQ(p[i], i >= 3 && i < 7 ? 0.95f : 1.0f) << i;  // bias lies first
}

TEST(Optimizer, ClipsByTheGlobalNorm) {
  EXPECT_NEAR(global_norm(std::vector<float>{3, 4}), 5, 1e-12);
  EXPECT_EQ(clip_factor(0.5, 1), 1.0f);
  EXPECT_NEAR(clip_factor(5, 1), 0.2, 1e-6);
  EXPECT_EQ(clip_factor(5, 0), 1.0f);
  const ParameterMap map = two_tensors();
  std::vector<float> p(static_cast<std::size_t>(map.size()), 1.0f), q = p, g(p.size(), 0.0f);
  AdamW a(map.size()), b(map.size());
  g[0] = 30;
  g[1] = 40;
  EXPECT_NEAR(a.update(map, p, g, {.max_norm = 1}), 50, 1e-6);
  const float factor = clip_factor(50, 1);
  for (float& value : g) value *= factor;
  b.update(map, q, g, {.max_norm = 0});
  EXPECT_EQ(p, q);
}

TEST(Optimizer, AStepThatIsNotFiniteChangesNothing) {
  const ParameterMap map = two_tensors();
  std::vector<float> p(static_cast<std::size_t>(map.size()), 1.0f), g(p.size(), 1.0f);
  AdamW optimizer(map.size());
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    g[2] = bad;
    EXPECT_FALSE(std::isfinite(optimizer.update(map, p, g, {})));
    EXPECT_EQ(optimizer.steps(), 0);
    EXPECT_EQ(p, std::vector<float>(p.size(), 1.0f));
  }
}

TEST(Optimizer, SizesAreChecked) {
  const ParameterMap map = two_tensors();
  std::vector<float> p(static_cast<std::size_t>(map.size())), few(3);
  AdamW optimizer(map.size()), other(3);
  EXPECT_THROW(optimizer.update(map, few, p, {}), InvalidArgument);
  EXPECT_THROW(optimizer.update(map, p, few, {}), InvalidArgument);
  EXPECT_THROW(other.update(map, p, p, {}), InvalidArgument);
}

TEST(Schedule, RisesThenFalls) {
  const RateSchedule s{.peak = 1.0f, .warmup = 10, .total = 110, .floor = 0.1f};
  for (const auto rate : {constant_rate, linear_rate, cosine_rate}) {
    EXPECT_FLOAT_EQ(rate(s, 0), 0.1f);
    EXPECT_FLOAT_EQ(rate(s, 9), 1.0f);
    EXPECT_FLOAT_EQ(rate(s, 10), 1.0f);
  }
  EXPECT_FLOAT_EQ(constant_rate(s, 1000), 1.0f);
  EXPECT_FLOAT_EQ(linear_rate(s, 60), 0.55f);
  EXPECT_FLOAT_EQ(cosine_rate(s, 60), 0.55f);
  EXPECT_GT(cosine_rate(s, 35), linear_rate(s, 35));
  EXPECT_FLOAT_EQ(linear_rate(s, 110), 0.1f);
  EXPECT_FLOAT_EQ(cosine_rate(s, 5000), 0.1f);
}

TEST(Schedule, NoRoomBetweenWarmupAndTotalMeansTheFloor) {
  EXPECT_FLOAT_EQ(cosine_rate({.peak = 1, .warmup = 5, .total = 5, .floor = .2f}, 5), .2f);
}

TEST(Hash, KnownAnswersOfXxh64) {
  auto hash = [](const std::string& s) { return hash_bytes(s.data(), s.size()); };
  EXPECT_EQ(hash(""), 0xef46db3751d8e999u);
  EXPECT_EQ(hash("a"), 0xd24ec4f1a98c6e5bu);
  EXPECT_EQ(hash("abc"), 0x44bc2cf5ad770999u);
  EXPECT_EQ(hash("The quick brown fox jumps over the lazy dog"), 0x0b242d361fda71bcu);
}

}  // namespace
}  // namespace troupe::train
