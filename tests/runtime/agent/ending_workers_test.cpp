#include "troupe/runtime/agent/ending_workers.hpp"

#include <gtest/gtest.h>
#include <chrono>

namespace troupe::agent {
namespace {

using namespace std::chrono_literals;

const ProcessIndex kOne = ProcessIndex::of(1), kTwo = ProcessIndex::of(2);

TEST(EndingWorkers, ALateWorkerIsNamedOnce) {
  EndingWorkers workers;
  const Time now{};
  EXPECT_EQ(workers.next_deadline(), Time::max());
  EXPECT_TRUE(workers.told(kOne, now));
  EXPECT_TRUE(workers.told(kTwo, now + 1s));
  EXPECT_EQ(workers.next_deadline(), now + EndingWorkers::kPatience);
  EXPECT_TRUE(workers.take_late(now + EndingWorkers::kPatience - 1ms).empty());
  EXPECT_EQ(workers.take_late(now + EndingWorkers::kPatience), std::vector{kOne});
  EXPECT_TRUE(workers.take_late(now + EndingWorkers::kPatience).empty());
  EXPECT_EQ(workers.next_deadline(), now + 1s + EndingWorkers::kPatience);
}

TEST(EndingWorkers, ASecondOrderGivesNoMoreTime) {
  EndingWorkers workers;
  const Time now{};
  EXPECT_TRUE(workers.told(kOne, now));
  EXPECT_FALSE(workers.told(kOne, now + 1s));
  EXPECT_EQ(workers.take_late(now + EndingWorkers::kPatience), std::vector{kOne});
}

TEST(EndingWorkers, AWorkerThatHasEndedIsNotLate) {
  EndingWorkers workers;
  const Time now{};
  EXPECT_TRUE(workers.told(kOne, now));
  workers.forget(kOne);
  workers.forget(kTwo);
  EXPECT_EQ(workers.next_deadline(), Time::max());
  EXPECT_TRUE(workers.take_late(now + 1h).empty());
}

}  // namespace
}  // namespace troupe::agent
