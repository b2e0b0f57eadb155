// Tests the peak that 08_train_gpt compares its speed with.
#include "examples/support/train_gpt.hpp"

#include <gtest/gtest.h>

namespace train_gpt {
namespace {

TEST(ExamplePeak, IsNeverExceeded) {
  Peak peak(100e9);
  EXPECT_DOUBLE_EQ(peak.share_of(25e9), 0.25);
  EXPECT_DOUBLE_EQ(peak.share_of(125.8e9), 1);
  EXPECT_DOUBLE_EQ(peak.flops(), 125.8e9);
  EXPECT_DOUBLE_EQ(peak.share_of(62.9e9), 0.5) << "the peak stays";
}

}  // namespace
}  // namespace train_gpt
