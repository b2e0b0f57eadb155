// Tests the files with what trials print: their limits, and what a restart finds.
#include "troupe/tune/export/trial_logs.hpp"

#include "tests/tune/study/studies.hpp"

#include <gtest/gtest.h>
#include <set>

namespace troupe::tune::trial_logs_test {
namespace {

using namespace studies;

class TrialLogsTest : public studies::Test {
 protected:
  std::string folder() const { return root_ + "/logs"; }
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder()))
      names.insert(entry.path().filename().string());
    return names;
  }
};

TEST_F(TrialLogsTest, LinesAreInTheFileOfTheirTrial) {
  TrialLogs logs(folder());
  EXPECT_FALSE(fs::exists(folder())) << "nothing was printed";
  for (int i = 0; i < 100; ++i) logs.write(i, "first of " + std::to_string(i));
  logs.write(7, "second");
  EXPECT_EQ(files().size(), 100U);
  EXPECT_EQ(slurp(logs.path_of(7)), "first of 7\nsecond\n");
  EXPECT_FALSE(logs.take_error());
}

TEST_F(TrialLogsTest, AFileKeepsTheLatestLinesWithinItsLimit) {
  TrialLogs logs(folder(), {.per_trial = Bytes{1000}});
  for (int i = 0; i < 500; ++i) {
    logs.write(3, "line " + std::to_string(i));
    ASSERT_LE(fs::file_size(logs.path_of(3)), 1000U);
  }
  const std::string text = slurp(logs.path_of(3));
  EXPECT_TRUE(text.starts_with("(earlier lines are left out)\nline "));
  EXPECT_TRUE(text.ends_with("\nline 498\nline 499\n"));
  EXPECT_GT(text.size(), 400U);
  logs.write(3, std::string(5000, 'x'));
  EXPECT_LE(fs::file_size(logs.path_of(3)), 1000U);
  EXPECT_TRUE(slurp(logs.path_of(3)).ends_with("\nline 499\n" + std::string(250, 'x') + "\n"));
  EXPECT_EQ(files().size(), 1U) << "no draft is left";
}

TEST_F(TrialLogsTest, FilesStayForLiveTrialsAndTheLatestOfEachKind) {
  TrialLogs logs(folder(), {.failed = 2, .others = 3});
  for (int i = 0; i < 20; ++i) logs.write(i, "x");
  for (int i = 0; i < 16; ++i) logs.over(i, i % 2 == 0);
  const std::set<std::string> expected = {"trial-12.txt", "trial-14.txt",                  // failed
                                          "trial-11.txt", "trial-13.txt", "trial-15.txt",  // others
                                          "trial-16.txt", "trial-17.txt", "trial-18.txt",
                                          "trial-19.txt"};  // live
  EXPECT_EQ(files(), expected);
}

TEST_F(TrialLogsTest, ARestartGoesOnWithTheFilesThatAreThere) {
  const TrialLogLimits limits{.failed = 1, .others = 2};
  {
    TrialLogs logs(folder(), limits);
    for (int i = 0; i < 5; ++i) logs.write(i, "before");
    for (int i = 0; i < 3; ++i) logs.over(i, i == 1);
  }
  spill(folder() + "/notes.txt", "mine");
  TrialLogs logs(folder(), limits);
  logs.over(1, true);
  logs.live(3);
  logs.live(4);
  logs.write(3, "after");
  EXPECT_EQ(slurp(logs.path_of(3)), "before\nafter\n");
  logs.over(4, false);
  logs.over(5, false);
  EXPECT_EQ(files(),
            (std::set<std::string>{"notes.txt", "trial-1.txt", "trial-3.txt", "trial-4.txt"}));
}

TEST_F(TrialLogsTest, AFolderThatCannotBeMadeIsAnError) {
  spill(folder(), "a file");
  TrialLogs logs(folder());
  logs.write(1, "lost");
  const auto error = logs.take_error();
  ASSERT_TRUE(error);
  EXPECT_NE(error->message().find(folder()), std::string::npos) << error->message();
  EXPECT_FALSE(logs.take_error());
}

}  // namespace
}  // namespace troupe::tune::trial_logs_test
