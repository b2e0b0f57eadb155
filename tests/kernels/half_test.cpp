// Tests both 16-bit types, on all their values and on numbers between two values.
#include "troupe/kernels/half/half.hpp"

#include "troupe/kernels/denormals/denormals.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace troupe::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <class From, class To>
void expect_all_values_return(From from, To to) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = from(static_cast<std::uint16_t>(bits));
    if (std::isnan(value))
      ASSERT_TRUE(std::isnan(from(to(value)))) << bits;
    else
      ASSERT_EQ(to(value), bits) << bits;
  }
}

/// Expects that a number between two neighbours becomes the nearer one, and the even one in the
/// middle. `least_infinite`: bits of the least number that becomes infinite.
template <class From, class To>
void expect_nearest(From from, To to, std::uint32_t least_infinite) {
  for (std::uint32_t low = 0; low + 1 < least_infinite; ++low) {
    const float a = from(static_cast<std::uint16_t>(low)),
                b = from(static_cast<std::uint16_t>(low + 1)), middle = a / 2 + b / 2;
    if (!std::isnormal(middle)) continue;
    const std::uint32_t even = low % 2 == 0 ? low : low + 1;
    ASSERT_EQ(to(middle), even) << low;
    ASSERT_EQ(to(std::nextafter(middle, 0.0f)), low);
    ASSERT_EQ(to(std::nextafter(middle, kInfinity)), low + 1);
    ASSERT_EQ(to(-middle), even | 0x8000u) << low;
  }
}

TEST(Half, EveryValueComesBack) {
  expect_all_values_return(from_bf16, to_bf16);
  expect_all_values_return(from_f16, to_f16);
}

TEST(Half, RoundsToTheNearestAndTiesToEven) {
  expect_nearest(from_bf16, to_bf16, 0x7f80);
  expect_nearest(from_f16, to_f16, 0x7c00);
  EXPECT_EQ(to_bf16(1.00390625f), 0x3f80);
  EXPECT_EQ(to_bf16(1.005859375f), 0x3f81);
}

TEST(Half, WhatIsTooGreatIsInfinite) {
  EXPECT_EQ(to_f16(65519.99f), 0x7bff);
  EXPECT_EQ(to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(to_f16(-1e30f), 0xfc00);
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(from_f16(0x7c00), kInfinity);
}

TEST(Half, SubnormalHalvesLiveInEveryMode) {
  const FlushDenormals flush;
  EXPECT_EQ(from_f16(1), 0x1p-24f);
  EXPECT_EQ(to_f16(0x1p-24f), 1);
  EXPECT_EQ(to_f16(0x1p-25f), 0);
  EXPECT_EQ(to_f16(0x1.8p-25f), 1);
}

}  // namespace
}  // namespace troupe::kernels
