// Tests which lines of a process are kept for the news of its death.
#include "troupe/runtime/agent/last_lines.hpp"

#include <gtest/gtest.h>
#include <string>

namespace troupe::agent {
namespace {

TEST(LastLines, KeepsTheLastTwenty) {
  LastLines lines;
  EXPECT_EQ(lines.text(), "");
  std::string expected;
  for (int i = 0; i < 5000; ++i) {
    lines.add("line " + std::to_string(i));
    if (i >= 4980) expected += "line " + std::to_string(i) + "\n";
  }
  EXPECT_EQ(lines.text(), expected);
}

TEST(LastLines, KeepsWholeLinesOfFourKiB) {
  LastLines lines;
  const std::string kilobyte(1000, 'x');
  for (int i = 0; i < 30; ++i) lines.add(kilobyte);
  EXPECT_EQ(lines.text().size(), 4u * 1001);
  lines.add("");
  EXPECT_EQ(lines.text().size(), 4u * 1001 + 1);
  lines.add(std::string(100'000, 'y'));
  EXPECT_EQ(lines.text(), std::string(LastLines::kBytes - 1, 'y') + "\n");
}

}  // namespace
}  // namespace troupe::agent
