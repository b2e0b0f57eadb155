// Tests LogLines: the bound of the queue, the number of lost lines, and floods that become one
// line.
#include "troupe/runtime/base/log_lines.hpp"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace troupe::log_lines_test {
namespace {

using namespace std::chrono_literals;
using Taken = std::vector<std::string>;

struct Lines : testing::Test {
  LogLines lines;
  Time now{1s};
};

TEST_F(Lines, KeepsTheOrder) {
  EXPECT_FALSE(lines.due());
  lines.add("b", now);
  lines.add("a", now);
  lines.add_always("c");
  ASSERT_TRUE(lines.due());
  EXPECT_LE(*lines.due(), now);
  EXPECT_EQ(lines.take(now), (Taken{"b", "a", "c"}));
  EXPECT_FALSE(lines.due());
}

TEST_F(Lines, CountsWhatIsLost) {
  const std::string long_line(LogLines::kMostBytes / 2, 'x');
  lines.add(long_line + "1", now);
  for (int i = 2; i < 9; ++i) lines.add(long_line + std::to_string(i), now);
  lines.add_always("last words");
  const Taken taken = lines.take(now);
  ASSERT_EQ(taken.size(), 3u);
  EXPECT_EQ(taken[0], long_line + "1");
  EXPECT_EQ(taken[1], "last words");
  EXPECT_EQ(taken[2], "troupe: 7 lines are lost here, because nobody read the ones before");
  lines.add("the next", now);
  EXPECT_EQ(lines.take(now), Taken{"the next"}) << "the queue has room again";
}

TEST_F(Lines, EqualLinesOfASecondAreCounted) {
  for (int i = 0; i < 30'000; ++i) lines.add(i % 2 == 0 ? "even" : "odd", now);
  EXPECT_EQ(lines.take(now), (Taken{"even", "odd"}));
  EXPECT_EQ(lines.due(), now + 1s);
  EXPECT_EQ(lines.take(now + 999ms), Taken{});
  EXPECT_EQ(lines.take(now + 1s), (Taken{"even (14999 more times)", "odd (14999 more times)"}));
  lines.add("even", now + 1500ms);
  EXPECT_EQ(lines.take(now + 1500ms), Taken{}) << "the flood goes on";
  EXPECT_EQ(lines.take(now + 2s), Taken{"even (1 more time)"});
  EXPECT_FALSE(lines.due());
  lines.add("even", now + 3s);
  EXPECT_EQ(lines.take(now + 3s), Taken{"even"}) << "the flood was over";
}

TEST_F(Lines, AGroupBecomesOneLine) {
  for (int i = 0; i < 30'000; ++i)
    lines.add_counted("g", "call " + std::to_string(i), now + i * 1us);
  lines.add_counted("other", "alone", now);
  EXPECT_EQ(lines.take(now + 190ms), Taken{});
  EXPECT_EQ(lines.take(now + 230ms), (Taken{"call 0 (the first of 30000 such lines)", "alone"}));
  EXPECT_FALSE(lines.due());
}

TEST_F(Lines, AGroupWithoutEndIsToldEverySecond) {
  std::size_t told = 0;
  for (int i = 0; i < 10'000; ++i) {
    lines.add_counted("g", "call", now + i * 1ms);
    told += lines.take(now + i * 1ms).size();
  }
  EXPECT_GE(told, 9u);
  EXPECT_LE(told, 10u);
}

TEST_F(Lines, TheEndOfTheProcessNeedNotWait) {
  lines.add("a", now);
  lines.add("a", now);
  lines.add_counted("g", "call", now);
  EXPECT_EQ(lines.take(now, true), (Taken{"a", "a (1 more time)", "call"}));
  EXPECT_FALSE(lines.due());
}

TEST_F(Lines, ManyDifferentLinesTakeBoundedMemory) {
  for (int i = 0; i < 1000; ++i) {
    lines.add_counted("group " + std::to_string(i), "call " + std::to_string(i), now);
    lines.add("line " + std::to_string(i), now);
  }
  EXPECT_EQ(lines.take(now, true).size(), 2000u);
}

}  // namespace
}  // namespace troupe::log_lines_test
