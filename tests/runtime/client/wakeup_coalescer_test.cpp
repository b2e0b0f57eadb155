// Tests that replies which follow one another soon share the wake-up of their caller, for 0.1 ms
// at most.
#include "troupe/runtime/client/wakeup_coalescer.hpp"

#include <gtest/gtest.h>

namespace troupe::client {
namespace {

using namespace std::chrono_literals;

constexpr ProcessIndex kCaller = 7, kOther = 8;

struct WakeupCoalescers : ::testing::Test {
  /// Sends a reply `after` the one before. Returns true when its caller is not woken for it.
  bool reply(Duration after, ProcessIndex caller = kCaller) {
    now += after;
    return late.puts_off(caller, now);
  }
  WakeupCoalescer late;
  Time now = Time{} + 1h;
};

TEST_F(WakeupCoalescers, TheFirstReplyWakesAndThoseSoonAfterItWait) {
  EXPECT_FALSE(reply(0us));
  EXPECT_EQ(late.take(), ProcessIndex{});
  EXPECT_TRUE(reply(10us));
  EXPECT_TRUE(reply(10us));
  EXPECT_EQ(late.take(), kCaller);
  EXPECT_EQ(late.take(), ProcessIndex{});
}

TEST_F(WakeupCoalescers, CallsThatTakeLongWakeEachTime) {
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(reply(WakeupCoalescer::kSoon)) << i;
}

TEST_F(WakeupCoalescers, NoReplyWaitsLongerForOthersThanTheLimit) {
  for (const Duration pace : {Duration(100ns), Duration(1us), Duration(3us), Duration(17us),
                              Duration(30us), Duration(49us)}) {
    late = WakeupCoalescer();
    reply(pace);
    EXPECT_TRUE(reply(pace)) << pace.count();
    const Time first = now;
    while (reply(pace)) {
    }
    EXPECT_GE(now - first, WakeupCoalescer::kLongest) << pace.count();
    // The coalescer does not read the clock for each reply.
    EXPECT_LT(now - first, WakeupCoalescer::kLongest + WakeupCoalescer::kUnseen + 2 * pace)
        << pace.count();
    EXPECT_EQ(late.take(), kCaller);
  }
}

TEST_F(WakeupCoalescers, WhoCallsMeanwhileIsWokenAndSoIsTheFirst) {
  reply(0us);
  EXPECT_TRUE(reply(1us));
  EXPECT_FALSE(reply(1us, kOther));
  EXPECT_EQ(late.take(), kCaller);
}

TEST_F(WakeupCoalescers, ALongCallAmongShortOnesEndsTheWait) {
  reply(0us);
  EXPECT_TRUE(reply(20us));
  EXPECT_FALSE(reply(1ms));
  EXPECT_EQ(late.take(), kCaller);
}

int g_looks = 0;
Time g_now{};
Time look() noexcept {
  ++g_looks;
  return g_now;
}

TEST_F(WakeupCoalescers, AFastPaceLooksAtTheClockOnceInManyReplies) {
  g_now = now;
  for (int i = 0; i < 330; ++i, g_now += 200ns) late.puts_off(kCaller, LazyTime(&look));
  EXPECT_LE(g_looks, 330 / WakeupCoalescer::kMostUnseen + 3);
  EXPECT_GE(g_looks, 330 / WakeupCoalescer::kMostUnseen - 3);
}

}  // namespace
}  // namespace troupe::client
