// Tests how a deadline is computed from a wait, for durations of any size.
#include "troupe/runtime/base/deadline.hpp"

#include <gtest/gtest.h>

namespace troupe {
namespace {

using namespace std::chrono_literals;

constexpr Time kBegun = Time{} + 5h;

TEST(Deadline, is_never_for_a_wait_that_cannot_be_counted) {
  static_assert(deadline_after(kBegun, Duration::max()) == Time::max());
  static_assert(deadline_after(kBegun, Duration::max() - 1ns) == Time::max());
  static_assert(deadline_after(kBegun, Time::max() - kBegun) == Time::max());
  static_assert(deadline_after(kBegun, Time::max() - kBegun - 1ns) == Time::max() - 1ns);
  static_assert(deadline_after(Time::max(), 1s) == Time::max());
  EXPECT_EQ(deadline_after(kBegun, 2s), kBegun + 2s);
}

TEST(Deadline, is_at_once_for_nothing_and_for_less) {
  for (const Duration timeout : {Duration(0), Duration(-1), Duration(-1h), Duration::min()})
    EXPECT_EQ(deadline_after(kBegun, timeout), kBegun) << timeout.count();
}

TEST(Deadline, leaves_what_is_left) {
  static_assert(time_left(Time::max(), kBegun) == Duration::max());
  static_assert(time_left(Time::max() - 1ns, kBegun) == Time::max() - kBegun - 1ns);
  static_assert(time_left(kBegun, kBegun) == Duration::zero());
  static_assert(time_left(Time::min(), kBegun) == Duration::zero());
  EXPECT_EQ(time_left(kBegun + 3s, kBegun + 1s), 2s);
  EXPECT_EQ(time_left(kBegun, kBegun + 1s), Duration::zero());
}

}  // namespace
}  // namespace troupe
