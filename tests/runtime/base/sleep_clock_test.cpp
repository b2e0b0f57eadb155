// Tests how the library notices that the machine has slept: one clock went on, the other stood
// still.
#include "troupe/runtime/base/sleep_clock.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

using namespace std::chrono_literals;

constexpr Time kNow = Time{} + 1000s;

TEST(SleepClock, SleepIsToldOnceAndMomentsMoveByIt) {
  SleepClock clock;
  EXPECT_FALSE(clock.slept(3000s, kNow)) << "what was before it is not told";
  EXPECT_EQ(clock.up_at(kNow + 8s), 3008s);
  EXPECT_FALSE(clock.slept(3001s, kNow + 1s));
  EXPECT_TRUE(clock.slept(3602s, kNow + 2s));
  EXPECT_EQ(clock.up_at(kNow + 8s), 3608s);
  EXPECT_FALSE(clock.slept(3603s, kNow + 3s));
}

TEST(SleepClock, WhoLosesTheCpuBetweenTheTwoReadingsHasNotSlept) {
  SleepClock clock;
  EXPECT_FALSE(clock.slept(3000s, kNow));
  EXPECT_FALSE(clock.slept(3001s, kNow + 6s)) << "five seconds between them";
  EXPECT_EQ(clock.up_at(kNow), 3000s);
  EXPECT_FALSE(clock.slept(3007s, kNow + 7s)) << "nor by the next reading";
}

TEST(UpTime, IsNeverBehindTheMonotonicClock) {
  const Duration awake = steady_now().time_since_epoch();
  EXPECT_GE(up_time(), awake);
}

}  // namespace
}  // namespace troupe
