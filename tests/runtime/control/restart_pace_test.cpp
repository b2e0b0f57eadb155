// Tests RestartPace. Short lives are further and further apart, a longer life ends the series,
// and a small limit of restarts is reached soon.
#include "troupe/runtime/control/restart_pace.hpp"

#include "troupe/runtime/base/back_off.hpp"

#include <gtest/gtest.h>

namespace troupe::control::restart_pace_test {
namespace {

using namespace std::chrono_literals;

struct RestartPaceTest : testing::Test {
  RestartPaceOptions options;
  RestartPace pace;
  Time now = Time{} + 1000s;

  /// Runs one life and returns the pause after it. The life ends `lasts` after its constructor,
  /// or in the constructor.
  Duration life(std::optional<Duration> lasts, std::int64_t limit = -1, bool asked = false) {
    pace.begins();
    if (lasts) {
      pace.lives(now);
      now += *lasts;
    }
    const Duration pause = pace.ended(options, now, limit, asked);
    now += pause;
    return pause;
  }
};

TEST(BackOff, DoublesUpToItsBound) {
  EXPECT_EQ(back_off(0, 100ms, 10s), 0s);
  EXPECT_EQ(back_off(1, 100ms, 10s), 100ms);
  EXPECT_EQ(back_off(4, 100ms, 10s), 800ms);
  EXPECT_EQ(back_off(8, 100ms, 10s), 10s);
  EXPECT_EQ(back_off(~0u, 100ms, 10s), 10s);
  EXPECT_EQ(back_off(~0u, 1ns, Duration::max()), Duration::max());
  EXPECT_EQ(back_off(~0u, 0s, 10s), 0s);
  EXPECT_EQ(back_off(3, 20s, 10s), 10s);
}

TEST_F(RestartPaceTest, ShortLivesAreFurtherAndFurtherApart) {
  std::vector<Duration> pauses;
  for (int i = 0; i < 12; ++i)
    pauses.push_back(life(i % 2 == 0 ? std::nullopt : std::optional(5ms)));
  EXPECT_EQ(pauses, (std::vector<Duration>{0s, 100ms, 200ms, 400ms, 800ms, 1600ms, 3200ms, 6400ms,
                                           10s, 10s, 10s, 10s}));
  EXPECT_EQ(pace.count(), 12u);
  EXPECT_EQ(pace.short_lives(), 12u);
}

TEST_F(RestartPaceTest, OneThatHasLivedEndsTheRow) {
  for (int i = 0; i < 5; ++i) life(std::nullopt);
  EXPECT_EQ(life(1s), 0s);
  EXPECT_EQ(life(999ms), 0s);
  EXPECT_EQ(life(999ms), 100ms);
}

TEST_F(RestartPaceTest, AnEndThatWasAskedForIsNoFailure) {
  life(std::nullopt);
  life(std::nullopt);
  EXPECT_EQ(life(5ms, 1000, true), 0s);
  EXPECT_EQ(pace.short_lives(), 2u) << "nor does it end the row";
  EXPECT_EQ(life(std::nullopt, 1000), 200ms);
}

TEST_F(RestartPaceTest, WithoutLimitTenLivesASecondAreTheMost) {
  EXPECT_EQ(life(1ms, -1, true), 0s);
  EXPECT_EQ(life(1ms, -1, true), 99ms);
  EXPECT_EQ(life(2s, -1, true), 0s);
}

TEST_F(RestartPaceTest, ASmallLimitIsReachedSoonAndALargeOneCalmly) {
  for (const std::int64_t limit : {1, 3, 10, 50}) {
    pace = {};
    const Time begun = now;
    for (std::int64_t i = 0; i < limit; ++i) life(std::nullopt, limit);
    EXPECT_LE(now - begun, 5s) << limit;
  }
  pace = {};
  for (int i = 0; i < 20; ++i) life(std::nullopt, 51);
  EXPECT_EQ(life(std::nullopt, 51), 10s);
}

TEST_F(RestartPaceTest, SaysHowALifeEnds) {
  pace.begins();
  EXPECT_EQ(pace.describe_end(now), "ended in its constructor");
  pace.lives(now);
  EXPECT_EQ(pace.describe_end(now + 3ms), "ended 3 ms after its constructor");
  EXPECT_EQ(pause_text(1600ms), "1.6 s");
  EXPECT_EQ(pause_text(90s), "90 s");
  EXPECT_EQ(ordinal(1) + ordinal(2) + ordinal(3) + ordinal(4) + ordinal(11) + ordinal(21) +
                ordinal(112) + ordinal(1003),
            "1st2nd3rd4th11th21st112th1003rd");
}

}  // namespace
}  // namespace troupe::control::restart_pace_test
