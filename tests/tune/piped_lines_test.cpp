// Tests which trial the lines belong to that the pipes of nodes bring to a driver.
#include "troupe/tune/internal/piped_lines.hpp"

#include <gtest/gtest.h>
#include <atomic>
#include <chrono>
#include <thread>

namespace troupe::tune {
namespace {

using namespace std::chrono_literals;
using Lines = std::vector<std::pair<int, std::string>>;

class PipedLinesTest : public testing::Test {
 protected:
  bool take(const std::string& text, std::int64_t pid = 7, const std::string& node = "node-0",
            bool is_error = false) {
    return pipes_.take({.text = text, .node = node, .pid = pid, .is_error = is_error});
  }
  PipedLines pipes_{"abc"};
};

TEST_F(PipedLinesTest, AStreamIsATrialsFromOneMarkToTheNext) {
  EXPECT_FALSE(take("of another task"));
  EXPECT_TRUE(take(pipes_.begins(3)));
  EXPECT_TRUE(take("one"));
  EXPECT_FALSE(take("of its other stream", 7, "node-0", true));
  EXPECT_FALSE(take("of another process", 8));
  EXPECT_FALSE(take("of another node", 7, "node-1"));
  EXPECT_TRUE(take(pipes_.begins(3), 7, "node-0", true));
  EXPECT_TRUE(take("two", 7, "node-0", true));
  EXPECT_TRUE(take(pipes_.begins(4))) << "the same process runs another trial";
  EXPECT_TRUE(take(""));
  EXPECT_TRUE(take(pipes_.ends()));
  EXPECT_FALSE(take("of a later task"));
  EXPECT_EQ(pipes_.lines(), (Lines{{3, "one"}, {3, "two"}, {4, ""}}));
  EXPECT_TRUE(pipes_.lines().empty());
}

TEST_F(PipedLinesTest, ALineWithoutItsEndStandsBeforeTheMark) {
  EXPECT_TRUE(take(pipes_.begins(3)));
  EXPECT_TRUE(take("half" + pipes_.begins(4)));
  EXPECT_TRUE(take("tune: half" + pipes_.ends()));
  EXPECT_EQ(pipes_.lines(), (Lines{{3, "half"}, {4, "tune: half"}}));
}

TEST_F(PipedLinesTest, MarksOfOthersAreText) {
  EXPECT_FALSE(take(PipedLines("def").begins(3)));
  EXPECT_FALSE(take("words [abc]"));
  EXPECT_TRUE(take(pipes_.begins(3)));
  EXPECT_TRUE(take(PipedLines("def").ends()));
  EXPECT_EQ(pipes_.lines(), (Lines{{3, PipedLines("def").ends()}}));
}

TEST_F(PipedLinesTest, WaitsForTheMarkOfEachNode) {
  const std::string mark = pipes_.begin_round();
  EXPECT_TRUE(take(mark, 1, "node-0"));
  EXPECT_TRUE(take(mark, 1, "node-0", true));
  EXPECT_FALSE(pipes_.await_complete(2, steady_now()));
  std::thread late([&] { take(mark, 1, "node-1"); });
  EXPECT_TRUE(pipes_.await_complete(2, steady_now() + 20s));
  late.join();
  const std::string next = pipes_.begin_round();
  EXPECT_TRUE(take(mark, 1, "node-0", true));
  EXPECT_FALSE(pipes_.await_complete(1, steady_now())) << "a late mark is of the round before";
  EXPECT_TRUE(take(next, 1, "node-0"));
  EXPECT_TRUE(pipes_.await_complete(1, steady_now()));
  pipes_.close();
  EXPECT_TRUE(take(next, 1, "node-1")) << "a mark is never shown";
}

TEST_F(PipedLinesTest, TooMuchWaitsUntilItIsTakenOrNobodyTakesMore) {
  EXPECT_TRUE(take(pipes_.begins(0)));
  EXPECT_TRUE(take(std::string(PipedLines::kMostQueued, 'x')));
  std::atomic<bool> taken = false;
  std::thread next([&] { taken = take("next"); });
  EXPECT_FALSE(pipes_.await_complete(1, steady_now() + 20s)) << "at once: lines wait";
  EXPECT_EQ(pipes_.lines().size(), 1U);
  next.join();
  EXPECT_TRUE(taken);
  EXPECT_TRUE(take(std::string(PipedLines::kMostQueued, 'x')));
  std::thread last([&] { taken = take("last"); });
  pipes_.close();
  last.join();
  EXPECT_FALSE(taken);
}

}  // namespace
}  // namespace troupe::tune
