// Tests the sentence for each kind of mistake in a schedule.
#include "troupe/train/pipeline/validate.hpp"

#include "tests/train/pipeline/schedules.hpp"
#include "troupe/train/pipeline/text.hpp"

#include <gtest/gtest.h>

namespace troupe::train::pipeline_test {
namespace {

std::string refusal(const char* text, int p, int m, int v = 1) {
  return refusal_of([&] { validate(parse_schedule(text), p, m, v); });
}

constexpr const char* kTwoRanks =
    "0F0 0SendF0 0RecvB0 0B0\n"
    "1RecvF0 1F0 1B0 1SendB0\n";

TEST(Validate, AcceptsWhatComputes) {
  EXPECT_EQ(refusal(kTwoRanks, 2, 1), "none");
  EXPECT_EQ(refusal("0F0 0SendF0 0RecvB0 0I0 0W0\n1RecvF0 1F0 1I0 1SendB0 1W0", 2, 1), "none");
  EXPECT_EQ(refusal("0F0 1F0 1B0 0B0", 1, 1, 2), "none");
}

TEST(Validate, NamesListsThatAreNotThoseOfTheRanks) {
  EXPECT_EQ(refusal(kTwoRanks, 3, 1),
            "schedule: it has lists for 2 ranks, and the layout has pp = 3: write a line for each "
            "rank, or change pp");
}

TEST(Validate, NamesAnActionThatIsNotOfTheModel) {
  EXPECT_EQ(refusal("0F0 0SendF0 0RecvB0 0B0\n1RecvF0 1F0 1B0 1SendB0 3F0", 2, 1),
            "schedule: rank 1: 3F0 is of stage 3, and there are 2: use 0 to 1");
  EXPECT_EQ(refusal("0F0 0SendF0 0RecvB0 0B0 0F1\n1RecvF0 1F0 1B0 1SendB0", 2, 1),
            "schedule: rank 0: 0F1 is of micro-batch 1, and there are 1: use 0 to 0");
  EXPECT_EQ(refusal_of([] { validate({{{Action::F, -1, 0}}}, 1, 1); }),
            "schedule: rank 0: -1F0 is of stage -1, and there are 1: use 0 to 0");
}

TEST(Validate, NamesAnActionOnAnotherRank) {
  EXPECT_EQ(refusal("0F0 1F0 0SendF0 0RecvB0 0B0\n1RecvF0 1B0 1SendB0", 2, 1),
            "schedule: rank 0: 1F0 belongs to rank 1, as stage s lies on rank s % 2: move it to "
            "line 2");
}

TEST(Validate, NamesWhatIsThereTwiceOrNotAtAll) {
  EXPECT_EQ(refusal("0F0 0SendF0 0F0 0RecvB0 0B0\n1RecvF0 1F0 1B0 1SendB0", 2, 1),
            "schedule: rank 0: 0F0 stands there twice, as action 1 and as action 3: remove one");
  EXPECT_EQ(refusal("0SendF0 0RecvB0 0B0\n1RecvF0 1F0 1B0 1SendB0", 2, 1),
            "schedule: rank 0: 0F0 is missing: add it");
  EXPECT_EQ(refusal("0F0 0SendF0 0RecvB0\n1RecvF0 1F0 1B0 1SendB0", 2, 1),
            "schedule: rank 0: 0B0 is missing: add it, or I and W in its place");
  EXPECT_EQ(refusal("0F0 0SendF0 0RecvB0 0I0\n1RecvF0 1F0 1B0 1SendB0", 2, 1),
            "schedule: rank 0: 0W0 is missing: add it, or B in the place of I and W");
  EXPECT_EQ(refusal("0F0 0SendF0 0RecvB0 0B0 0W0\n1RecvF0 1F0 1B0 1SendB0", 2, 1),
            "schedule: rank 0: it has both 0B0 and 0W0, and B is I and W: remove one");
  EXPECT_EQ(refusal("0F0 0SendF0 0RecvB0 0B0\n1RecvF0 1F0 1B0", 2, 1),
            "schedule: rank 1: 1SendB0 is missing: add it");
}

TEST(Validate, NamesATransferThatLeadsNowhere) {
  const std::string nowhere = " has no stage on another rank at its other end: remove it";
  EXPECT_EQ(refusal("0RecvF0 0F0 0SendF0 0RecvB0 0B0\n1RecvF0 1F0 1B0 1SendB0", 2, 1),
            "schedule: rank 0: 0RecvF0" + nowhere);
  EXPECT_EQ(refusal("0F0 0SendF0 0RecvB0 0B0\n1RecvF0 1F0 1SendF0 1B0 1SendB0", 2, 1),
            "schedule: rank 1: 1SendF0" + nowhere);
  EXPECT_EQ(refusal("0F0 0SendF0 1F0 1B0 0B0", 1, 1, 2), "schedule: rank 0: 0SendF0" + nowhere);
}

TEST(Validate, NamesWhatStandsBeforeWhatItNeeds) {
  const auto needs = [](const char* second, const char* first) {
    return std::string(second) + " stands before " + first + ", which it needs: move it behind";
  };
  EXPECT_TRUE(contains(refusal("0SendF0 0F0 0RecvB0 0B0\n1RecvF0 1F0 1B0 1SendB0", 2, 1),
                       "rank 0: " + needs("0SendF0", "0F0")));
  EXPECT_TRUE(contains(refusal("0F0 0SendF0 0B0 0RecvB0\n1RecvF0 1F0 1B0 1SendB0", 2, 1),
                       "rank 0: " + needs("0B0", "0RecvB0")));
  EXPECT_TRUE(contains(refusal("0F0 0SendF0 0RecvB0 0B0\n1F0 1RecvF0 1B0 1SendB0", 2, 1),
                       "rank 1: " + needs("1F0", "1RecvF0")));
  EXPECT_TRUE(contains(refusal("0F0 0SendF0 0RecvB0 0B0\n1RecvF0 1F0 1SendB0 1B0", 2, 1),
                       "rank 1: " + needs("1SendB0", "1B0")));
  EXPECT_TRUE(contains(refusal("0F0 0SendF0 0RecvB0 0B0\n1RecvF0 1B0 1F0 1SendB0", 2, 1),
                       "rank 1: " + needs("1B0", "1F0")));
  EXPECT_TRUE(contains(refusal("0F0 0W0 0I0", 1, 1), needs("0W0", "0I0")));
  EXPECT_TRUE(contains(refusal("1F0 0F0 1B0 0B0", 1, 1, 2), needs("1F0", "0F0")));
  EXPECT_TRUE(contains(refusal("0F0 1F0 0B0 1B0", 1, 1, 2), needs("0B0", "1B0")));
}

TEST(Validate, NamesAReceiveThatGetsAnothersData) {
  EXPECT_EQ(refusal("0F0 0SendF0 0F1 0SendF1 0RecvB0 0B0 0RecvB1 0B1\n"
                    "1RecvF1 1RecvF0 1F0 1F1 1B0 1SendB0 1B1 1SendB1",
                    2, 2),
            "schedule: rank 1: 1RecvF1 would get what rank 0 sends with 0SendF0, as both are "
            "number 1 between these ranks: bring the receives into the order of the sends");
  // Stages 0 and 2 lie on rank 0. Transfers of stage 0 forward and of stage 2 backward are in one
  // order.
  EXPECT_TRUE(contains(refusal("0F0 0SendF0 2RecvF0 2F0 2SendF0 2RecvB0 2B0 2SendB0 0RecvB0 0B0\n"
                               "1RecvF0 1F0 1SendF0 3RecvF0 3F0 3B0 3SendB0 1RecvB0 1B0 1SendB0",
                               2, 1, 2),
                       "none"));
  EXPECT_TRUE(contains(refusal("0F0 0SendF0 2RecvF0 2F0 2SendF0 2RecvB0 2B0 2SendB0 0RecvB0 0B0\n"
                               "1RecvF0 1F0 1SendF0 1RecvB0 3RecvF0 3F0 3B0 3SendB0 1B0 1SendB0",
                               2, 1, 2),
                       "1RecvB0 would get what rank 0 sends with 2SendF0"));
}

TEST(Validate, NamesTheCircleOfADeadlock) {
  EXPECT_EQ(refusal("0F0 0RecvB0 0B0 0SendF0\n1RecvF0 1F0 1B0 1SendB0", 2, 1),
            "schedule: it deadlocks: rank 0 stands at 0RecvB0 until rank 1 comes to 1SendB0, and "
            "rank 1 stands at 1RecvF0 until rank 0 comes to 0SendF0: move one of these actions "
            "before what its rank stands at");
}

// Rank 0 sends forward and rank 1 sends back; each receives only after another computation. With
// buffered sends the schedule would run.
TEST(Validate, TakesSendsForRendezvous) {
  const char* const crossed =
      "0F0 0SendF0 0F1 0SendF1 0F2 0RecvB0 0B0 0SendF2 0RecvB1 0B1 0RecvB2 0B2\n"
      "1RecvF0 1F0 1I0 1SendB0 1W0 1RecvF1 1F1 1B1 1SendB1 1RecvF2 1F2 1B2 1SendB2";
  const std::string text = refusal(crossed, 2, 3);
  EXPECT_TRUE(contains(text, "rank 0 stands at 0SendF1 until rank 1 comes to 1RecvF1")) << text;
  EXPECT_TRUE(contains(text, "rank 1 stands at 1SendB0 until rank 0 comes to 0RecvB0")) << text;
  // Without the computation between, rank 1 receives the next input beside its send.
  EXPECT_EQ(refusal("0F0 0SendF0 0F1 0SendF1 0F2 0RecvB0 0B0 0SendF2 0RecvB1 0B1 0RecvB2 0B2\n"
                    "1RecvF0 1F0 1B0 1SendB0 1RecvF1 1F1 1B1 1SendB1 1RecvF2 1F2 1B2 1SendB2",
                    2, 3),
            "none");
}

TEST(Validate, NamesOnlyTheRanksOfTheCircle) {
  const Schedule schedule = parse_schedule(
      "0F0 0SendF0 0RecvB0 0B0\n"
      "1RecvF0 1F0 1RecvB0 1B0 1SendF0 1SendB0\n"
      "2RecvF0 2F0 2B0 2SendB0\n");
  const std::string text = refusal_of([&] { validate(schedule, 3, 1); });
  EXPECT_TRUE(contains(text,
                       "deadlocks: rank 1 stands at 1RecvB0 until rank 2 comes to 2SendB0, and "
                       "rank 2 stands at 2RecvF0 until rank 1 comes to 1SendF0:"))
      << text;
}

TEST(Validate, RefusesSizesThatAreNone) {
  EXPECT_TRUE(contains(refusal_of([] { validate({}, 0, 1); }), "at least 1"));
  EXPECT_TRUE(contains(refusal_of([] { validate({}, 1, 1); }), "lists for 0 ranks"));
  EXPECT_TRUE(contains(refusal_of([] { validate({}, 1 << 20, 1 << 20, 1 << 20); }), "2^20"));
}

}  // namespace
}  // namespace troupe::train::pipeline_test
