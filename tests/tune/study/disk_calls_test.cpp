// Tests that a caller can give up a call that hangs.
#include "troupe/tune/study/internal/disk_calls.hpp"

#include "tests/eventually.hpp"

#include <gtest/gtest.h>
#include <atomic>
#include <future>
#include <string>

namespace troupe::tune::internal {
namespace {

TEST(DiskCalls, RunOneAfterTheOtherOnOneThread) {
  DiskCalls calls;
  int sum = 0;
  for (int i = 1; i <= 1000; ++i)
    ASSERT_TRUE(calls.run([&sum, i] { sum += i; }, [] { return false; }));
  EXPECT_EQ(sum, 500'500);
  EXPECT_FALSE(calls.hangs());
}

TEST(DiskCalls, GoOnWhenTheirCallerGivesThemUp) {
  std::promise<void> gate;
  std::atomic<bool> ended = false;
  int asked = 0;
  DiskCalls calls;
  EXPECT_FALSE(calls.run(
      [&] {
        gate.get_future().wait();
        ended = true;
      },
      [&] { return ++asked == 3; }));
  EXPECT_TRUE(calls.hangs());
  EXPECT_FALSE(ended);
  gate.set_value();
  EXPECT_TRUE(eventually([&] { return !calls.hangs(); }));
  EXPECT_TRUE(ended);
  EXPECT_TRUE(calls.run([&] { ended = false; }, [] { return false; }))
      << "the thread is free again";
  EXPECT_FALSE(ended);
}

TEST(DiskCalls, RunBehindACallThatWasGivenUp) {
  std::promise<void> gate;
  std::string order;
  DiskCalls calls;
  EXPECT_FALSE(calls.run(
      [&] {
        gate.get_future().wait();
        order += "slow ";
      },
      [] { return true; }));
  EXPECT_FALSE(calls.run([&] { order += "last"; }, [] { return true; }));
  EXPECT_TRUE(calls.hangs());
  gate.set_value();
  EXPECT_TRUE(eventually([&] { return !calls.hangs(); }));
  EXPECT_EQ(order, "slow last");
}

}  // namespace
}  // namespace troupe::tune::internal
