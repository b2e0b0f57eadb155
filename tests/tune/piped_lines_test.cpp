// Tests which trial the lines belong to that the pipes of nodes bring to a driver.
#include "troupe/tune/internal/piped_lines.hpp"

#include "troupe/runtime/agent/log_reader.hpp"

#include <gtest/gtest.h>
#include <atomic>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::tune {
namespace {

using namespace std::chrono_literals;
using Lines = std::vector<std::pair<int, std::string>>;

class PipedLinesTest : public testing::Test {
 protected:
  bool take(const std::string& text, std::int64_t pid = 7, const std::string& node = "node-0",
            bool is_error = false) {
    LogLine line{.text = text, .node = node, .pid = pid, .is_error = is_error};
    const bool taken = pipes_.take(line, now_);
    left_ = line.text;
    return taken;
  }
  /// Passes what a process writes, as its node does: with a line cut into pieces.
  void write(const std::string& bytes, const std::vector<std::size_t>& parts = {}) {
    const auto pass = [this](std::string_view line) { take(std::string(line)); };
    std::string_view rest = bytes;
    for (const std::size_t size : parts) {
      reader_.feed(7, rest.substr(0, size), pass);
      rest.remove_prefix(size);
    }
    reader_.feed(7, rest, pass);
  }
  /// Returns the texts of a trial, joined.
  std::string text_of(int trial) {
    std::string joined;
    for (const auto& [number, text] : pipes_.lines(now_))
      if (number == trial) joined += text;
    return joined;
  }
  Time now_ = steady_now();
  std::string left_;  ///< of the line of take()
  agent::LogReader reader_;
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

TEST_F(PipedLinesTest, ALineOfOthersStaysWhenAMarkStandsBehindIt) {
  EXPECT_FALSE(take("half" + pipes_.begins(3)));
  EXPECT_EQ(left_, "half");
  EXPECT_TRUE(take("one"));
  EXPECT_TRUE(take("two" + pipes_.ends()));
  EXPECT_FALSE(take("half" + pipes_.begin_round()));
  EXPECT_EQ(left_, "half");
  EXPECT_TRUE(pipes_.await_complete(1, steady_now()));
  EXPECT_EQ(pipes_.lines(now_), (Lines{{3, "one"}, {3, "two"}}));
  pipes_.close();
  EXPECT_FALSE(take("half" + pipes_.ends()));
  EXPECT_EQ(left_, "half");
}

/// Behind a line without its end, of any length, a mark may be cut at any of its bytes.
TEST_F(PipedLinesTest, AMarkIsKnownWhereverANodeCutsIt) {
  constexpr std::size_t kPiece = agent::LogReader::kPiece;
  const std::string mark = pipes_.begins(4);
  for (std::size_t cut = 0; cut <= mark.size() + 1; ++cut) {
    write(pipes_.begins(3) + "\n");
    const std::string half(kPiece - cut, 't');
    write(half + mark + "\n");
    write("of the next\n" + pipes_.ends() + "\n");
    EXPECT_FALSE(take("of nobody")) << cut;
    const Lines lines = pipes_.lines(now_);
    ASSERT_EQ(lines.size(), 2U) << cut;
    EXPECT_TRUE(lines[0] == std::pair(3, half)) << cut;
    EXPECT_TRUE(lines[1] == std::pair(4, std::string("of the next"))) << cut;
  }
}

TEST_F(PipedLinesTest, AMarkIsKnownWhenItComesInTwoReads) {
  const std::string bytes = pipes_.begins(3) + "\nhalf" + pipes_.begins(4) + "\nnext\n";
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    write(bytes, {cut});
    EXPECT_EQ(pipes_.lines(now_), (Lines{{3, "half"}, {4, "next"}})) << cut;
    EXPECT_TRUE(take(pipes_.ends()));
  }
}

TEST_F(PipedLinesTest, AMarkCountsWhenItsBeginIsShownAlready) {
  const std::string mark = pipes_.begins(4);
  EXPECT_TRUE(take(pipes_.begins(3)));
  EXPECT_TRUE(take("half" + mark.substr(0, 9)));
  EXPECT_EQ(text_of(3), "half" + mark.substr(0, 9));
  EXPECT_TRUE(take(mark.substr(9)));
  EXPECT_TRUE(take(mark.substr(0, 9)));
  EXPECT_TRUE(take(mark.substr(9)));
  EXPECT_TRUE(take("next"));
  EXPECT_EQ(pipes_.lines(now_), (Lines{{4, "next"}}));
}

TEST_F(PipedLinesTest, TextThatLooksLikeAMarkIsText) {
  const std::string mark = pipes_.begins(4), other = PipedLines("abd").begins(4);
  const std::vector<std::string> texts{"tune: [abc]",
                                       " [abc]",
                                       "words [abc]",
                                       "tune: the lines of trial -4 follow [abc]",
                                       "tune: the lines of trial  follow [abc]",
                                       "tune: the lines of trial 4 5 follow [abc]",
                                       "tune: the lines of trial 99999999999 follow [abc]",
                                       "tune: the lines of trial 4 follows [abc]",
                                       "tune: no line before this one is missing, round x [abc]",
                                       mark + ".",
                                       mark.substr(0, 9),
                                       "and " + mark.substr(9) + ".",
                                       other.substr(0, 9),
                                       other.substr(9),
                                       "t",
                                       "tune: ",
                                       "tune: tune: the lines of"};
  EXPECT_TRUE(take(pipes_.begins(3)));
  Lines lines;
  for (const std::string& text : texts) {
    EXPECT_TRUE(take(text)) << text;
    lines.emplace_back(3, text);
  }
  EXPECT_EQ(pipes_.lines(now_), lines);
  EXPECT_TRUE(take(pipes_.ends()));
  for (const std::string& text : texts) {
    EXPECT_FALSE(take(text)) << text;
    EXPECT_EQ(left_, text);
  }
}

TEST_F(PipedLinesTest, StreamsOfKilledProcessesAreForgottenWhenTheyAreQuiet) {
  EXPECT_TRUE(take(pipes_.begins(3), 7));
  EXPECT_TRUE(take(pipes_.begins(3), 7, "node-0", true));
  EXPECT_TRUE(take(pipes_.begins(4), 8));
  pipes_.ended(3, now_);
  now_ += PipedLines::kQuiet / 2;
  EXPECT_TRUE(take("late", 7));
  now_ += PipedLines::kQuiet / 2;
  EXPECT_EQ(text_of(3), "late");
  EXPECT_EQ(pipes_.streams(), 2U) << "its standard error is quiet for so long, its output is not";
  now_ += PipedLines::kQuiet / 2;
  (void)pipes_.lines(now_);
  EXPECT_EQ(pipes_.streams(), 1U);
  EXPECT_FALSE(take("of a process with the same number", 7));
  EXPECT_TRUE(take("of a trial that runs", 8));
  EXPECT_TRUE(take(pipes_.begins(4), 9));
  pipes_.ended(4, now_);
  EXPECT_TRUE(take(pipes_.begins(4), 9)) << "the next attempt runs in the same process";
  now_ += PipedLines::kQuiet;
  (void)pipes_.lines(now_);
  EXPECT_EQ(pipes_.streams(), 1U);
  EXPECT_TRUE(take("of the next attempt", 9));
}

TEST_F(PipedLinesTest, KeepsABoundedNumberOfStreams) {
  constexpr auto kMost = static_cast<std::int64_t>(PipedLines::kMostStreams);
  EXPECT_TRUE(take(pipes_.begins(1), 0));
  for (std::int64_t pid = 1; pid < kMost; ++pid) {
    now_ += 1ns;
    EXPECT_TRUE(take(pipes_.begins(pid == 5 ? 5 : 2), pid));
  }
  pipes_.ended(5, now_);
  now_ += 1ns;
  EXPECT_TRUE(take(pipes_.begins(3), kMost));
  EXPECT_FALSE(take("of a killed process", 5)) << "it goes first";
  now_ += 1ns;
  EXPECT_TRUE(take(pipes_.begins(3), kMost + 1));
  EXPECT_FALSE(take("of the one that has been quiet for the longest time", 0));
  EXPECT_TRUE(take("of one that has not", 1));
  EXPECT_EQ(pipes_.streams(), PipedLines::kMostStreams);
}

TEST_F(PipedLinesTest, WaitsForTheMarkOfEachNode) {
  const std::string mark = pipes_.begin_round();
  EXPECT_TRUE(take(mark, 1, "node-0"));
  EXPECT_TRUE(take(mark, 1, "node-0", true));
  EXPECT_FALSE(pipes_.await_complete(2, steady_now()));
  {
    const std::jthread late([&] { take(mark, 1, "node-1"); });
    EXPECT_TRUE(pipes_.await_complete(2, steady_now() + 20s));
  }
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
  std::jthread next([&] { taken = take("next"); });
  EXPECT_FALSE(pipes_.await_complete(1, steady_now() + 20s)) << "at once: lines wait";
  EXPECT_EQ(pipes_.lines().size(), 1U);
  next.join();
  EXPECT_TRUE(taken);
  EXPECT_TRUE(take(std::string(PipedLines::kMostQueued, 'x')));
  std::jthread last([&] { taken = take("last"); });
  pipes_.close();
  last.join();
  EXPECT_FALSE(taken);
}

}  // namespace
}  // namespace troupe::tune
