// Tests clipping by the global norm.
#include "troupe/train/optimizers/norm.hpp"

#include <gtest/gtest.h>

namespace troupe::train {
namespace {

TEST(ClipFactor, BringsANormThatIsTooGreatDownToTheLimit) {
  EXPECT_NEAR(clip_factor(5, 1), 0.2, 1e-6);
  EXPECT_EQ(clip_factor(0.5, 1), 1.0f);
  EXPECT_EQ(clip_factor(5, 0), 1.0f) << "0 is no clip";
}

}  // namespace
}  // namespace troupe::train
