// Tests the loss scale: a step that is not finite halves it, and 2,000 good steps in a row double
// it.
#include "troupe/train/optimizers/loss_scaler.hpp"

#include "troupe/runtime/base/error.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace troupe::train::loss_scaler_test {
namespace {

TEST(LossScaler, BeginsAt65536AndIsHalvedByEveryBadStep) {
  LossScaler scaler;
  EXPECT_EQ(scaler.scale(), 65536);
  for (const float want : {32768.0f, 16384.0f, 8192.0f}) {
    scaler.update(false);
    EXPECT_EQ(scaler.scale(), want);
  }
}

TEST(LossScaler, IsDoubledByTwoThousandGoodStepsInARowAndNotByOneLess) {
  LossScaler scaler;
  for (int i = 0; i < 1999; ++i) scaler.update(true);
  EXPECT_EQ(scaler.state(), (LossScale{65536, 1999}));
  scaler.update(true);
  EXPECT_EQ(scaler.state(), (LossScale{131072, 0}));
  for (int i = 0; i < 1999; ++i) scaler.update(true);
  scaler.update(false);
  EXPECT_EQ(scaler.state(), (LossScale{65536, 0})) << "the row begins anew";
  for (int i = 0; i < 1999; ++i) scaler.update(true);
  EXPECT_EQ(scaler.scale(), 65536);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 131072);
}

TEST(LossScaler, StaysFiniteAndAboveZero) {
  LossScaler growing({.initial = std::numeric_limits<float>::max(), .interval = 1});
  growing.update(true);
  EXPECT_EQ(growing.state(), (LossScale{std::numeric_limits<float>::max(), 0}));
  LossScaler shrinking;
  for (int i = 0; i < 1000; ++i) shrinking.update(false);
  EXPECT_EQ(shrinking.scale(), std::numeric_limits<float>::min());
  EXPECT_TRUE(std::isfinite(1 / shrinking.scale()));
}

TEST(LossScaler, TakesOtherFactors) {
  LossScaler scaler({.initial = 100, .growth = 3, .backoff = 0.25f, .interval = 2});
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 25);
  scaler.update(true);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 75);
  scaler.reset();
  EXPECT_EQ(scaler.state(), (LossScale{100, 0}));
}

TEST(LossScaler, GoesOnFromAState) {
  LossScaler first, second;
  for (int i = 0; i < 1500; ++i) first.update(true);
  second.restore(first.state());
  for (int i = 0; i < 500; ++i) second.update(true);
  EXPECT_EQ(second.state(), (LossScale{131072, 0}));
  EXPECT_THROW(second.restore({0, 0}), InvalidArgument);
  EXPECT_THROW(second.restore({INFINITY, 0}), InvalidArgument);
  EXPECT_THROW(second.restore({NAN, 0}), InvalidArgument);
  EXPECT_THROW(second.restore({1, -1}), InvalidArgument);
  EXPECT_EQ(second.state(), (LossScale{131072, 0})) << "what was refused changed nothing";
}

TEST(LossScaler, OptionsAreRefusedByMember) {
  const auto message = [](const LossScalerOptions& options) -> std::string {
    try {
      check(options);
    } catch (const InvalidArgument& error) {
      return error.message();
    }
    return "none";
  };
  EXPECT_EQ(message({}), "none");
  for (const float initial : {0.0f, -1.0f, INFINITY, NAN})
    EXPECT_NE(message({.initial = initial}).find(".initial"), std::string::npos);
  for (const float growth : {1.0f, INFINITY, NAN})
    EXPECT_NE(message({.growth = growth}).find(".growth"), std::string::npos);
  for (const float backoff : {0.0f, 1.0f, NAN})
    EXPECT_NE(message({.backoff = backoff}).find(".backoff"), std::string::npos);
  EXPECT_NE(message({.interval = 0}).find(".interval"), std::string::npos);
}

}  // namespace
}  // namespace troupe::train::loss_scaler_test
