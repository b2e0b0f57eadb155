// Tests the sentences about sources without an answer, and that several answers name each once.
#include "troupe/runtime/observe/missing.hpp"

#include <gtest/gtest.h>

#include <string>

namespace troupe::observe {
namespace {

TEST(Missing, TheSentenceSaysWhoWhyAndWhatToDo) {
  EXPECT_EQ(missing_text({"node-1", 0, "no answer in 1.5 s"}),
            "rows of node-1 are missing: no answer in 1.5 s; 'troupe list nodes' shows its state");
  EXPECT_EQ(missing_text({"node-1", 31, "no answer in 1 s"}),
            "rows of node-1/31 are missing: no answer in 1 s; 'troupe stack node-1/31' shows what "
            "it does");
  EXPECT_EQ(missing_text({"control", 0, "it is slow"}, "names"),
            "names of control are missing: it is slow; 'troupe events --since 10m' shows what the "
            "nodes know of it");
  EXPECT_EQ(missing_text({"control", 0, "it is slow"}, "events"),
            "events of control are missing: it is slow");
  EXPECT_EQ(missing_text({"node-1", 0, "it tells a part", false}),
            "rows of node-1 are missing: it tells a part");
  const std::string bad = missing_text({"\x1b]0;x\x07", 0, "\x1b[2J\n"});
  for (const char c : bad) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << bad;
}

TEST(Missing, SeveralAnswersNameASourceOnce) {
  Answer tasks, reasons;
  tasks.unanswered = {{"node-1", 0, "no answer in 1.5 s"}, {"node-0", 7, "no answer in 1 s"}};
  reasons.unanswered = {{"node-1", 0, "no answer in 1.5 s"}};
  Missing missing(tasks);
  missing.add(reasons);
  missing.add("control", 0, "it is slow");
  EXPECT_EQ(missing.sources().size(), 3U);
  EXPECT_EQ(missing.lines().size(), 3U);
  EXPECT_EQ(missing.json().dump(), R"([{"node":"node-1","pid":0,"why":"no answer in 1.5 s"},)"
                                   R"({"node":"node-0","pid":7,"why":"no answer in 1 s"},)"
                                   R"({"node":"control","pid":0,"why":"it is slow"}])");
}

TEST(Missing, OfManySourcesTenAreNamedAndTheOthersCounted) {
  Answer answer;
  for (int i = 0; i < 30; ++i)
    answer.unanswered.push_back({"node-" + std::to_string(i), 0, "no answer in 1.5 s"});
  answer.more_unanswered = 3;
  const Missing missing(answer);
  const auto lines = missing.lines();
  ASSERT_EQ(lines.size(), 11U);
  EXPECT_EQ(lines.back(), "rows of 23 more processes and nodes are missing: --json names them");
  EXPECT_EQ(missing.lines("rows", false).back(), "rows of 23 more processes and nodes are missing");
  EXPECT_EQ(missing.more(), 3U);
  EXPECT_FALSE(missing.empty());
  EXPECT_TRUE(Missing().empty() && Missing(Answer()).lines().empty());
}

}  // namespace
}  // namespace troupe::observe
