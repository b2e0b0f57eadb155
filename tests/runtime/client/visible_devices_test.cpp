// Tests CUDA_VISIBLE_DEVICES of a process that has some of its node's GPUs.
#include "troupe/runtime/client/visible_devices.hpp"

#include <gtest/gtest.h>

namespace troupe::client {
namespace {

TEST(VisibleDevices, AreThoseOfTheLease) {
  EXPECT_EQ(visible_devices({}, nullptr), "");
  EXPECT_EQ(visible_devices({0, 3}, nullptr), "0,3");
  EXPECT_EQ(visible_devices({1}, ""), "1");
}

TEST(VisibleDevices, AreCountedAmongThoseThatTheNodeSees) {
  EXPECT_EQ(visible_devices({}, "4,6"), "");
  EXPECT_EQ(visible_devices({0, 1}, "4,6"), "4,6");
  EXPECT_EQ(visible_devices({1}, "GPU-8a56,GPU-1f2b"), "GPU-1f2b");
  EXPECT_EQ(visible_devices({1, 2}, "4,6"), "6,2") << "more were declared than it sees";
}

}  // namespace
}  // namespace troupe::client
