// Tests learning-rate schedules, and the hash.
#include "troupe/train/schedule.hpp"

#include "troupe/runtime/base/error.hpp"
#include "troupe/train/hash.hpp"

#include <gtest/gtest.h>

#include <string>

namespace troupe::train {
namespace {

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

TEST(Schedule, ADecayWithoutALengthIsRefusedAtEveryStep) {
  for (const auto rate : {linear_rate, cosine_rate})
    for (const std::int64_t step : {0, 2, 5}) {
      EXPECT_THROW(rate({.peak = 1e-3f}, step), InvalidArgument);
      EXPECT_THROW(rate({.peak = 1e-3f, .warmup = 4}, step), InvalidArgument);
      EXPECT_THROW(rate({.peak = 1e-3f, .total = -1}, step), InvalidArgument);
    }
  EXPECT_FLOAT_EQ(constant_rate({.peak = 1e-3f}, 5), 1e-3f);
  EXPECT_FLOAT_EQ(cosine_rate({.peak = 1e-3f, .total = 1}, 0), 1e-3f);
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
