// Tests the lines of the log: their prefix and their limit.
#include "troupe/runtime/base/log.hpp"

#include <gtest/gtest.h>
#include <string>

namespace troupe {
namespace {

TEST(LogLine, IsOneLineWithItsPrefix) {
  testing::internal::CaptureStderr();
  log_line("%s ends: %d", "node1", 7);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "troupe: node1 ends: 7\n");
}

TEST(LogLine, IsCutAtItsLimitAndStillEnds) {
  testing::internal::CaptureStderr();
  log_line("%s", std::string(10'000, 'x').c_str());
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_EQ(line.size(), 8 + 4095 + 1u);
  EXPECT_EQ(line.back(), '\n');
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

}  // namespace
}  // namespace troupe
