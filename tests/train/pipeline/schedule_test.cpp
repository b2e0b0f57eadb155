// Generated schedules: their order, their time, what they keep.
#include "troupe/train/pipeline/schedule.hpp"

#include "troupe/runtime/base/error.hpp"
#include "troupe/train/pipeline/simulate.hpp"
#include "troupe/train/pipeline/text.hpp"
#include "troupe/train/pipeline/validate.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace troupe::train::pipeline_test {
namespace {

constexpr ScheduleKind kGpipe = ScheduleKind::gpipe;
constexpr ScheduleKind k1f1b = ScheduleKind::one_forward_one_backward;
constexpr ScheduleKind kInterleaved = ScheduleKind::interleaved;

TEST(Schedules, OfTwoRanksAreWrittenOut) {
  EXPECT_EQ(text_of(generate(kGpipe, 2, 2)),
            "0F0, 0SendF0, 0F1, 0SendF1, 0RecvB0, 0B0, 0RecvB1, 0B1\n"
            "1RecvF0, 1F0, 1RecvF1, 1F1, 1B0, 1SendB0, 1B1, 1SendB1\n");
  EXPECT_EQ(text_of(generate(k1f1b, 2, 3)),
            "0F0, 0SendF0, 0F1, 0RecvB0, 0SendF1, 0B0, 0F2, 0RecvB1, 0SendF2, 0B1, 0RecvB2, 0B2\n"
            "1RecvF0, 1F0, 1B0, 1SendB0, 1RecvF1, 1F1, 1B1, 1SendB1, 1RecvF2, 1F2, 1B2, 1SendB2\n");
  EXPECT_EQ(text_of(generate(k1f1b, 1, 2)), "0F0, 0B0, 0F1, 0B1\n");
}

TEST(Schedules, TakeTheTimeAndHaveTheBubblesOfThePapers) {
  const Timeline plain =
      simulate(generate(k1f1b, 4, 8), {.forward = 1, .input = 0.5, .weight = 0.5});
  EXPECT_EQ(plain.makespan, 22);
  EXPECT_NEAR(plain.bubble, 0.273, 0.0005);
  EXPECT_EQ(simulate(generate(kGpipe, 4, 8)).makespan, 22);
  EXPECT_NEAR(simulate(generate(kInterleaved, 4, 8, 2)).bubble, 3.0 / 19, 1e-12);
}

}  // namespace
}  // namespace troupe::train::pipeline_test
