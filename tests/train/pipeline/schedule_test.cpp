// Tests generated and lowered schedules: their order, their time, and the activations that they
// keep.
#include "troupe/train/pipeline/schedule.hpp"

#include "tests/train/pipeline/schedules.hpp"
#include "troupe/train/pipeline/simulate.hpp"
#include "troupe/train/pipeline/text.hpp"
#include "troupe/train/pipeline/validate.hpp"

#include <gtest/gtest.h>

#include <array>
#include <functional>

namespace troupe::train::pipeline_test {
namespace {

/// F takes as long as B.
constexpr Costs kTicks{.forward = 1, .input = 0.5, .weight = 0.5};

struct Case {
  ScheduleKind kind;
  int p, m, v;
};

/// Calls `check` for every schedule with p <= 8, m <= 16, v <= 2.
void for_each_case(const std::function<void(const Case&, const Schedule&)>& check) {
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 16; ++m)
      for (const Case& each : {Case{kGpipe, p, m, 1}, Case{k1f1b, p, m, 1},
                               Case{kInterleaved, p, m, 1}, Case{kInterleaved, p, m, 2}}) {
        if (each.kind == kInterleaved && m % p != 0) continue;
        SCOPED_TRACE("kind " + std::to_string(static_cast<int>(each.kind)) +
                     " p = " + std::to_string(p) + " m = " + std::to_string(m) +
                     " v = " + std::to_string(each.v));
        check(each, generate(each.kind, p, m, each.v));
      }
}

int count_of(const std::vector<Action>& actions, Action::Op op) {
  return static_cast<int>(std::count_if(actions.begin(), actions.end(),
                                        [op](const Action& action) { return action.op == op; }));
}

int warm_up_of(const std::vector<Action>& actions) {
  const auto first = std::find_if(actions.begin(), actions.end(),
                                  [](const Action& action) { return action.op == Action::B; });
  return count_of({actions.begin(), first}, Action::F);
}

TEST(Schedules, OfTwoRanksAreWrittenOut) {
  EXPECT_EQ(text_of(generate(kGpipe, 2, 2)),
            "0F0, 0SendF0, 0F1, 0SendF1, 0RecvB0, 0B0, 0RecvB1, 0B1\n"
            "1RecvF0, 1F0, 1RecvF1, 1F1, 1B0, 1SendB0, 1B1, 1SendB1\n");
  EXPECT_EQ(text_of(generate(k1f1b, 2, 3)),
            "0F0, 0SendF0, 0F1, 0RecvB0, 0SendF1, 0B0, 0F2, 0RecvB1, 0SendF2, 0B1, 0RecvB2, 0B2\n"
            "1RecvF0, 1F0, 1B0, 1SendB0, 1RecvF1, 1F1, 1B1, 1SendB1, 1RecvF2, 1F2, 1B2, 1SendB2\n");
  EXPECT_EQ(text_of(generate(k1f1b, 1, 2)), "0F0, 0B0, 0F1, 0B1\n");
}

TEST(Schedules, InterleavedRunsRoundsOfAsManyMicroBatchesAsRanks) {
  EXPECT_EQ(text_of(computations_of(generate(kInterleaved, 2, 4, 2))),
            "0F0, 0F1, 2F0, 2F1, 0F2, 2B0, 0F3, 2B1, 2F2, 0B0, 2F3, 0B1, 2B2, 2B3, 0B2, 0B3\n"
            "1F0, 1F1, 3F0, 3B0, 3F1, 3B1, 1F2, 1B0, 1F3, 1B1, 3F2, 3B2, 3F3, 3B3, 1B2, 1B3\n");
}

TEST(Schedules, AreValidForAllSizes) {
  int cases = 0;
  for_each_case([&](const Case& each, const Schedule& schedule) {
    EXPECT_NO_THROW(validate(schedule, each.p, each.m, each.v));
    ++cases;
  });
  EXPECT_EQ(cases, 2 * 8 * 16 + 2 * (16 + 8 + 5 + 4 + 3 + 2 + 2 + 2));
}

TEST(Schedules, BackwardPassesOfAStageAscend) {
  for_each_case([](const Case& each, const Schedule& schedule) {
    std::vector<int> next(static_cast<std::size_t>(each.p * each.v));
    for (const auto& actions : schedule)
      for (const Action& action : actions)
        if (action.op == Action::B) {
          EXPECT_EQ(action.micro, next[static_cast<std::size_t>(action.stage)]++);
        }
  });
}

TEST(Schedules, WarmUpsAreThoseOfThePapers) {
  for_each_case([](const Case& each, const Schedule& schedule) {
    for (int rank = 0; rank < each.p; ++rank) {
      const int all = each.m * each.v, behind = each.p - rank - 1;
      // One more forward pass precedes the first backward pass, unless there is none left.
      const int expected = each.kind == kGpipe ? all
                           : each.v == 1       ? behind + 1
                                               : 2 * behind + (each.v - 1) * each.p + 1;
      EXPECT_EQ(warm_up_of(schedule[static_cast<std::size_t>(rank)]), std::min(all, expected));
    }
  });
}

// A rank idles while the first micro-batch arrives and the last gradient leaves, and at no other
// time, although every send waits for its receiver.
TEST(Schedules, LoseTimeInTheBubbleAlone) {
  for_each_case([](const Case& each, const Schedule& schedule) {
    const Timeline timeline = simulate(schedule, kTicks);
    const double work = 2.0 * each.m * each.v, all = work + 2.0 * (each.p - 1);
    EXPECT_EQ(timeline.makespan, all);
    EXPECT_NEAR(timeline.bubble, 1 - work / all, 1e-12);
  });
}

TEST(Schedules, OneForwardOneBackwardLosesNothingWhenBackwardTakesLonger) {
  constexpr Costs kLonger{.forward = 1, .input = 1, .weight = 1};
  for (const ScheduleKind kind : {kGpipe, k1f1b})
    for (int p = 2; p <= 8; p *= 2)
      for (int m = p; m <= 16; ++m)
        EXPECT_EQ(simulate(generate(kind, p, m), kLonger).makespan, 3 * (m + p - 1));
}

TEST(Schedules, OfFourRanksAndEightMicroBatchesAreThoseOfThePapers) {
  for (const ScheduleKind kind : {kGpipe, k1f1b}) {
    const Timeline timeline = simulate(generate(kind, 4, 8), kTicks);
    EXPECT_EQ(timeline.makespan, 22);
    EXPECT_NEAR(timeline.bubble, 0.273, 0.0005);
  }
  EXPECT_NEAR(simulate(generate(kInterleaved, 4, 8, 2), kTicks).bubble, 3.0 / 19, 1e-12);
}

TEST(Schedules, KeepAsManyMicroBatchesAsThePapersSay) {
  for_each_case([](const Case& each, const Schedule& schedule) {
    const Live live = live_micro_batches(schedule);
    for (int rank = 0; rank < each.p; ++rank) {
      const int behind = each.p - rank - 1;
      const int expected = each.kind == kGpipe ? each.m
                           : each.v == 1       ? std::min(each.m, each.p - rank)
                                               : std::min(each.m * each.v, 2 * behind + each.p + 1);
      EXPECT_EQ(live.ranks[static_cast<std::size_t>(rank)], expected);
      if (each.v == 1) {
        EXPECT_EQ(live.stages[static_cast<std::size_t>(rank)], expected);
      }
    }
  });
}

TEST(Schedules, KeepAMicroBatchUntilItsWeightGradientsAreThere) {
  EXPECT_EQ(live_micro_batches(parse_schedule("0F0 0I0 0F1 0I1 0W0 0W1")).ranks[0], 2);
  EXPECT_EQ(live_micro_batches(parse_schedule("0F0 0I0 0W0 0F1 0I1 0W1")).ranks[0], 1);
}

TEST(Schedules, AreRefusedForSizesThatDoNotFit) {
  EXPECT_TRUE(contains(refusal_of([] { generate(kInterleaved, 4, 6, 2); }),
                       "6 is no multiple of it: choose micro = 8, or 1f1b"));
  EXPECT_TRUE(
      contains(refusal_of([] { generate(k1f1b, 2, 4, 2); }), "need the schedule interleaved"));
  EXPECT_TRUE(
      contains(refusal_of([] { generate(kGpipe, 2, 4, 2); }), "need the schedule interleaved"));
  for (const auto& [p, m, v] :
       {std::array{0, 1, 1}, std::array{1, 0, 1}, std::array{1, 1, 0}, std::array{-1, 1, 1}})
    EXPECT_TRUE(contains(refusal_of([&, p = p, m = m, v = v] { generate(kInterleaved, p, m, v); }),
                         "it must be at least 1"));
  EXPECT_TRUE(contains(refusal_of([] { generate(kGpipe, 1 << 11, 1 << 10); }), "2^20"));
  EXPECT_TRUE(contains(refusal_of([] { generate(kGpipe, 1 << 30, 1 << 30); }), "2^20"));
}

TEST(Groups, EndWhereAComputationStands) {
  const Schedule schedule = generate(k1f1b, 2, 3);  // 0F0, 0SendF0, 0F1, 0RecvB0, 0SendF1, 0B0, …
  EXPECT_EQ(group_end(schedule[0], 0), 0u);
  EXPECT_EQ(group_end(schedule[0], 1), 2u);
  EXPECT_EQ(group_end(schedule[0], 3), 5u);
  EXPECT_EQ(group_end(schedule[1], schedule[1].size() - 1), schedule[1].size());
  EXPECT_EQ(group_end(schedule[1], schedule[1].size()), schedule[1].size());
}

TEST(Groups, OneForwardOneBackwardExchangesInItsSteadyState) {
  const Schedule schedule = generate(k1f1b, 4, 8);
  for (int rank = 0; rank + 1 < 4; ++rank) {
    const auto& actions = schedule[static_cast<std::size_t>(rank)];
    int exchanges = 0;
    for (std::size_t i = 0; i + 1 < actions.size(); ++i) {
      const Action::Op a = actions[i].op, b = actions[i + 1].op;
      exchanges +=
          (a == Action::SendF && b == Action::RecvB) || (a == Action::RecvB && b == Action::SendF);
    }
    EXPECT_EQ(exchanges, 8 - (4 - rank - 1)) << "rank " << rank;
  }
}

TEST(Lower, MakesAValidScheduleOfEveryOrderThatComputes) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const int p = 1 + static_cast<int>(seed % 8), m = 1 + static_cast<int>(seed / 8 % 7),
              v = 1 + static_cast<int>(seed / 56 % 3);
    const Schedule order = RandomOrder(p, m, v, seed).make();
    const Schedule schedule = lower(order);
    EXPECT_EQ(refusal_of([&] { validate(schedule, p, m, v); }), "none") << text_of(order);
    EXPECT_EQ(computations_of(schedule), order);
  }
}

TEST(Lower, RefusesWhatCannotCompute) {
  EXPECT_TRUE(contains(refusal_of([] { lower(parse_schedule("0F0 0F1 0B0 0B1\n1F1 1B1 1F0")); }),
                       "rank 1: 1B0 is missing: add it, or I and W in its place"));
  const std::string circle =
      refusal_of([] { lower(parse_schedule("0F0 0B0 0F1 0B1\n1F1 1B1 1F0 1B0")); });
  EXPECT_TRUE(contains(circle, "deadlocks")) << circle;
  EXPECT_TRUE(contains(circle, "rank 0 stands at 0B0 until rank 1 comes to 1B0")) << circle;
  EXPECT_TRUE(contains(circle, "rank 1 stands at 1F1 until rank 0 comes to 0F1")) << circle;
  EXPECT_TRUE(contains(refusal_of([] { lower(generate(k1f1b, 2, 2)); }), "already"));
  EXPECT_TRUE(contains(refusal_of([] { lower({}); }), "number of ranks is 0"));
}

TEST(Simulate, CountsTransfersFromWhenBothEndsHaveAskedForThem) {
  const Timeline timeline =
      simulate(generate(k1f1b, 2, 1), {.forward = 3, .input = 1, .weight = 2, .transfer = 0.5});
  ASSERT_EQ(timeline.spans[1].size(), 4u);  // 1RecvF0, 1F0, 1B0, 1SendB0
  EXPECT_EQ(timeline.spans[1][0].start, 3);
  EXPECT_EQ(timeline.spans[1][0].end, 3.5);
  EXPECT_EQ(timeline.spans[1][3].start, 9.5);
  EXPECT_EQ(timeline.makespan, 13);
  EXPECT_NEAR(timeline.bubble, 1 - 12.0 / 26, 1e-12);
}

TEST(Simulate, RefusesCostsThatAreNone) {
  const Schedule schedule = generate(kGpipe, 1, 1);
  EXPECT_TRUE(contains(refusal_of([&] { simulate(schedule, {.forward = -1}); }), "forward"));
  EXPECT_TRUE(contains(refusal_of([&] { simulate(schedule, {.weight = 0.0 / 0.0}); }), "weight"));
  EXPECT_EQ(simulate(schedule, {.forward = 0, .input = 0, .weight = 0}).bubble, 0);
}

TEST(Simulate, RefusesAScheduleThatDeadlocks) {
  EXPECT_TRUE(contains(refusal_of([] {
                         simulate(
                             parse_schedule("0F0 0RecvB0 0B0 0SendF0\n1RecvF0 1F0 1B0 1SendB0"));
                       }),
                       "deadlocks"));
}

}  // namespace
}  // namespace troupe::train::pipeline_test
