// Tests the schedulers that stop trials early, against hand-made cases.
#include "troupe/tune/internal/schedulers.hpp"

#include "tests/leeway.hpp"

#include <gtest/gtest.h>
#include <time.h>
#include <cmath>
#include <limits>

namespace troupe::tune {
namespace {

SchedulerSetup setup(Goal goal = maximize) {
  return {{{{"x", uniform(0, 1)}}}, goal, 8, 1};
}

bool stops(Scheduler& s, int trial, long step, double score) {
  std::vector<Decision> out;
  s.reported({.trial = trial, .step = step, .score = score}, out);
  EXPECT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0].action == Decision::Action::go_on, out[0].why.empty());
  return out[0].action != Decision::Action::go_on;
}

TEST(AsyncHyperBand, RungsOfABracket) {
  EXPECT_EQ(AsyncHyperBandScheduler::rung_steps({.max_steps = 100}, 0),
            (std::vector<double>{1, 4, 16, 64}));
  EXPECT_EQ(AsyncHyperBandScheduler::rung_steps({.max_steps = 100}, 1),
            (std::vector<double>{4, 16, 64}));
}

TEST(AsyncHyperBand, JudgesAgainstThoseBeforeStrictly) {
  auto s = make_scheduler(AsyncHyperBand{.max_steps = 10, .eta = 2}, setup());
  for (int i = 0; i < 5; ++i) s->created(i, {0});
  EXPECT_FALSE(stops(*s, 0, 1, 1));  // the first one goes on
  EXPECT_TRUE(stops(*s, 1, 1, 0.5));
  EXPECT_FALSE(stops(*s, 2, 1, 0.75));  // equals the median of {1, 0.5}
  EXPECT_FALSE(stops(*s, 0, 5, 1));     // rung 4
  EXPECT_TRUE(stops(*s, 2, 5, 0.9));
  EXPECT_TRUE(stops(*s, 0, 10, 5));  // max_steps
}

TEST(AsyncHyperBand, ASkippedRungDoesNotJudgeLater) {
  auto s = make_scheduler(AsyncHyperBand{.max_steps = 100, .eta = 4}, setup());
  s->created(0, {0});
  s->created(1, {0});
  EXPECT_FALSE(stops(*s, 0, 1, 10));
  EXPECT_FALSE(stops(*s, 1, 4, 1));  // skips rung 1, and is the first at rung 4
  EXPECT_FALSE(stops(*s, 1, 5, 1));  // Ray would judge it at rung 1 now
}

TEST(AsyncHyperBand, NanIsIgnored) {
  auto s = make_scheduler(AsyncHyperBand{.max_steps = 100}, setup());
  for (int i = 0; i < 3; ++i) s->created(i, {0});
  EXPECT_FALSE(stops(*s, 0, 1, NAN));
  EXPECT_FALSE(stops(*s, 1, 1, -5));
  EXPECT_TRUE(stops(*s, 2, 1, -6));
}

/// A trial that has diverged is the worst of its rung and takes no other trial's place.
TEST(AsyncHyperBand, NanStopsWhereOthersCameBefore) {
  for (const Goal goal : {maximize, minimize}) {
    auto s = make_scheduler(AsyncHyperBand{.max_steps = 100}, setup(goal));
    for (int i = 0; i < 3; ++i) s->created(i, {0});
    EXPECT_FALSE(stops(*s, 0, 1, -5));
    EXPECT_TRUE(stops(*s, 1, 1, NAN));
    EXPECT_FALSE(stops(*s, 2, 1, -5));
  }
}

TEST(AsyncHyperBand, InfiniteScoresAreRankedAsNumbersAre) {
  auto s = make_scheduler(AsyncHyperBand{.max_steps = 100, .eta = 2}, setup());
  for (int i = 0; i < 6; ++i) s->created(i, {0});
  EXPECT_FALSE(stops(*s, 0, 1, -HUGE_VAL));
  EXPECT_FALSE(stops(*s, 1, 1, 3));
  EXPECT_FALSE(stops(*s, 2, 1, 3));
  EXPECT_TRUE(stops(*s, 3, 1, -HUGE_VAL));  // the median is 3
  EXPECT_FALSE(stops(*s, 4, 1, HUGE_VAL));
  EXPECT_TRUE(stops(*s, 5, 1, 2));
}

/// Brackets are drawn with weights that fall as e^rungs, also where that is beyond a double.
TEST(AsyncHyperBand, BracketsOfManyRungsAreDrawnByTheirWeights) {
  AsyncHyperBand options{.max_steps = 1000, .brackets = 2};
  options.eta = std::exp(std::log(1000) / 900);
  auto s = make_scheduler(options, setup());
  int judged = 0;
  for (int i = 0; i < 1000; ++i) {
    s->created(i, {0});
    judged += stops(*s, i, 1, -i);  // only the first bracket has a rung at step 1
  }
  EXPECT_NEAR(judged, 1000 / (1 + std::exp(-1)), 60);
}

TEST(Percentile, OfInfiniteAndLargeValues) {
  const double top = std::numeric_limits<double>::max();
  EXPECT_EQ(percentile({-HUGE_VAL, 1}, 50), -HUGE_VAL);
  EXPECT_EQ(percentile({1, HUGE_VAL}, 50), HUGE_VAL);
  EXPECT_EQ(percentile({-HUGE_VAL, HUGE_VAL}, 50), -HUGE_VAL);
  EXPECT_EQ(percentile({HUGE_VAL, HUGE_VAL}, 50), HUGE_VAL);
  EXPECT_EQ(percentile({-top, top}, 50), 0);
  EXPECT_EQ(percentile({NAN, 2}, 50), 2);
  EXPECT_FALSE(percentile({NAN}, 50));
}

TEST(SuccessiveHalving, BestFloorOfNOverEtaGoOnAndTiesToo) {
  auto s = make_scheduler(SuccessiveHalving{.min_steps = 1, .eta = 2}, setup(minimize));
  EXPECT_FALSE(stops(*s, 0, 1, 3));
  EXPECT_TRUE(stops(*s, 1, 1, 4));   // not the best of 2
  EXPECT_FALSE(stops(*s, 2, 1, 3));  // ties with the best
  EXPECT_FALSE(stops(*s, 3, 1, 3));  // among the best 2 of 4
  EXPECT_TRUE(stops(*s, 4, 1, 3.5));
  EXPECT_TRUE(stops(*s, 5, 1, NAN));
}

TEST(SuccessiveHalving, OneReportMayClearSeveralRungs) {
  auto s = make_scheduler(SuccessiveHalving{.min_steps = 1, .eta = 2}, setup());
  EXPECT_FALSE(stops(*s, 0, 5, 1));  // recorded at rungs 1, 2 and 4
  EXPECT_TRUE(stops(*s, 1, 1, 0.5));
  EXPECT_TRUE(stops(*s, 2, 4, 0.9));
}

TEST(SuccessiveHalving, BootstrapStopsTheFirstOnes) {
  auto s = make_scheduler(SuccessiveHalving{.eta = 2, .bootstrap = 2}, setup());
  EXPECT_TRUE(stops(*s, 0, 1, 1));
  EXPECT_TRUE(stops(*s, 1, 1, 2));
  EXPECT_FALSE(stops(*s, 2, 1, 3));
}

TEST(MedianStopping, BestAgainstTheMedianOfRunningMeans) {
  auto s = make_scheduler(MedianStopping{.grace = 2, .min_samples = 2}, setup());
  for (long step = 1; step <= 4; ++step) {
    EXPECT_FALSE(stops(*s, 0, step, static_cast<double>(step)));  // means from step 2: 2, 2.5, 3
    EXPECT_FALSE(stops(*s, 1, step, static_cast<double>(step)));
  }
  EXPECT_FALSE(stops(*s, 2, 1, -100));  // within the grace
  EXPECT_FALSE(stops(*s, 2, 2, 2));     // ties go on
  EXPECT_TRUE(stops(*s, 2, 3, 2.4));    // best 2.4 < 2.5
}

TEST(MedianStopping, NeedsEnoughTrialsThatCameAsFar) {
  auto s = make_scheduler(MedianStopping{.grace = 1, .min_samples = 3}, setup());
  for (const long step : {3, 5}) {
    stops(*s, 0, step, 10);
    stops(*s, 1, step, 10);
  }
  stops(*s, 2, 2, 10);
  EXPECT_FALSE(stops(*s, 3, 3, 0));  // trial 2 is behind
  stops(*s, 2, 3, 10);
  EXPECT_TRUE(stops(*s, 3, 3, 0));
}

/// A trial that diverged counts as the worst, whenever that happened.
TEST(MedianStopping, InfiniteScoresHaveAnInfiniteMean) {
  for (const bool late : {false, true}) {
    auto s = make_scheduler(MedianStopping{.grace = 1, .min_samples = 3}, setup(minimize));
    for (int trial = 0; trial < 2; ++trial) {
      stops(*s, trial, 1, late ? 1 : HUGE_VAL);
      stops(*s, trial, 2, late ? HUGE_VAL : 1);
    }
    stops(*s, 2, 2, 1);
    EXPECT_FALSE(stops(*s, 3, 2, 2)) << "the median is that of {inf, inf, 1}";
  }
  auto s = make_scheduler(MedianStopping{.grace = 1, .min_samples = 1}, setup());
  stops(*s, 0, 1, HUGE_VAL);
  stops(*s, 0, 2, 1);
  EXPECT_TRUE(stops(*s, 1, 2, 2));
}

TEST(PercentileStopping, OnlyCompletedTrialsAtTheSameStepCount) {
  auto s = make_scheduler(PercentileStopping{.startup_trials = 2}, setup(minimize));
  std::vector<Decision> none;
  for (int i = 0; i < 2; ++i) {
    for (long step = 1; step <= 3; ++step) EXPECT_FALSE(stops(*s, i, step, 1.0 + i));
    s->finished(i, none);
  }
  EXPECT_FALSE(stops(*s, 2, 1, 1.5));  // equals the median of {1, 2}
  EXPECT_FALSE(stops(*s, 2, 7, 9));    // no other trial has reached that step
  EXPECT_TRUE(stops(*s, 3, 2, 1.6));
  EXPECT_TRUE(stops(*s, 4, 1, NAN));
}

TEST(Patience, StopsOnlyWhenTheLatestAreWorse) {
  auto s = make_scheduler(Patience{.patience = 1, .min_delta = 0.1}, setup(minimize));
  EXPECT_FALSE(stops(*s, 0, 1, 1.0));
  EXPECT_FALSE(stops(*s, 0, 2, 1.5));
  EXPECT_TRUE(stops(*s, 0, 3, 1.2));
  EXPECT_FALSE(stops(*s, 1, 1, 1.0));
  EXPECT_FALSE(stops(*s, 1, 2, 1.05));
  EXPECT_FALSE(stops(*s, 1, 3, 1.08));  // within min_delta
}

/// The mean of equal scores is that score, however many there are, and large scores have a mean.
TEST(MedianStopping, EqualScoresAreTies) {
  for (const double score : {0.1, 1.7e308, -0.3}) {
    auto s = make_scheduler(MedianStopping{.grace = 1, .min_samples = 3}, setup());
    for (int trial = 0; trial < 4; ++trial)
      for (long step = 1; step <= 50; ++step)
        EXPECT_FALSE(stops(*s, trial, step, score)) << score << " " << step;
  }
}

TEST(MedianStopping, ARestoredTrialForgetsWhatItRepeats) {
  auto s = make_scheduler(MedianStopping{.grace = 1, .min_samples = 1}, setup());
  for (long step = 1; step <= 3; ++step) stops(*s, 0, step, 5);
  stops(*s, 1, 1, 9);
  EXPECT_FALSE(stops(*s, 1, 2, 1));
  EXPECT_TRUE(stops(*s, 1, 1, 4));  // the 9 belongs to a step that was never trained
}

double seconds_of_this_thread() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// A report does not walk through all reports before it: that would take ten seconds here.
TEST(Schedulers, LongTrialsAreQuick) {
  for (const AnyScheduler& settings :
       {AnyScheduler(MedianStopping{.min_samples = 1}),
        AnyScheduler(PercentileStopping{.startup_trials = 1}), AnyScheduler(Patience{})}) {
    auto s = make_scheduler(settings, setup());
    const double began = seconds_of_this_thread();
    std::vector<Decision> out;
    for (int trial = 0; trial < 8; ++trial) {
      for (long step = 1; step <= 30'000; ++step)
        s->reported({.trial = trial, .step = step, .score = static_cast<double>(step)}, out);
      s->finished(trial, out);
      out.clear();
    }
    EXPECT_LT(seconds_of_this_thread() - began, 1.0 * kLeeway) << show(settings);
  }
}

TEST(Hyperband, TablesOfThePaper) {
  using Brackets = std::vector<std::vector<Rung>>;
  EXPECT_EQ(hyperband_brackets(81, 3, HyperbandTable::formula),
            (Brackets{{{81, 1}, {27, 3}, {9, 9}, {3, 27}, {1, 81}},
                      {{34, 3}, {11, 9}, {3, 27}, {1, 81}},
                      {{15, 9}, {5, 27}, {1, 81}},
                      {{8, 27}, {2, 81}},
                      {{5, 81}}}));
  EXPECT_EQ(hyperband_brackets(81, 3, HyperbandTable::printed),
            (Brackets{{{81, 1}, {27, 3}, {9, 9}, {3, 27}, {1, 81}},
                      {{27, 3}, {9, 9}, {3, 27}, {1, 81}},
                      {{9, 9}, {3, 27}, {1, 81}},
                      {{6, 27}, {2, 81}},
                      {{5, 81}}}));
  auto starts = [](long max_steps, int eta) {
    std::vector<int> n;
    for (const auto& b : hyperband_brackets(max_steps, eta, HyperbandTable::formula)) {
      n.push_back(b.front().trials);
    }
    return n;
  };
  EXPECT_EQ(starts(27, 3), (std::vector<int>{27, 12, 6, 4}));
  EXPECT_EQ(starts(16, 2), (std::vector<int>{16, 10, 7, 5, 5}));
  EXPECT_EQ(starts(256, 4), (std::vector<int>{256, 80, 27, 10, 5}));
}

TEST(Schedulers, BadOptionsAreNamed) {
  EXPECT_THROW(make_scheduler(AsyncHyperBand{.max_steps = 0}, setup()), InvalidArgument);
  EXPECT_THROW(make_scheduler(AsyncHyperBand{.eta = 1}, setup()), InvalidArgument);
  EXPECT_THROW(make_scheduler(AsyncHyperBand{.eta = std::nextafter(1, 2)}, setup()),
               InvalidArgument);
  EXPECT_THROW(make_scheduler(AsyncHyperBand{.eta = NAN}, setup()), InvalidArgument);
  constexpr int most = std::numeric_limits<int>::max();
  EXPECT_THROW(make_scheduler(AsyncHyperBand{.brackets = most}, setup()), InvalidArgument);
  EXPECT_NO_THROW(make_scheduler(AsyncHyperBand{.eta = HUGE_VAL}, setup()));
  EXPECT_NO_THROW(make_scheduler(
      AsyncHyperBand{.max_steps = std::numeric_limits<long>::max(), .brackets = 9}, setup()));
  EXPECT_THROW(make_scheduler(Pbt{.grow = HUGE_VAL}, setup()), InvalidArgument);
  EXPECT_THROW(make_scheduler(Pbt{.shrink = NAN}, setup()), InvalidArgument);
  EXPECT_THROW(make_scheduler(SuccessiveHalving{.eta = 1}, setup()), InvalidArgument);
  EXPECT_THROW(make_scheduler(MedianStopping{.min_samples = 0}, setup()), InvalidArgument);
  EXPECT_THROW(make_scheduler(PercentileStopping{.percentile = 101}, setup()), InvalidArgument);
  EXPECT_THROW(make_scheduler(Patience{.patience = -1}, setup()), InvalidArgument);
  EXPECT_THROW(hyperband_brackets(0, 3, HyperbandTable::formula), InvalidArgument);
}

}  // namespace
}  // namespace troupe::tune
