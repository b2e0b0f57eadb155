// Tests which worker ends when a node runs out of memory.
#include "troupe/runtime/agent/memory_guard.hpp"

#include <gtest/gtest.h>

namespace troupe::agent::memory_guard_test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kMiB = 1u << 20, kGiB = 1u << 30;
constexpr Time kNow{100s};
const MachineMemory kFull{10 * kGiB, 10 * kMiB, "the machine"};

WorkerMemory use(ProcessIndex process, std::uint64_t mib, std::uint64_t asked, Duration since,
                 bool is_actor = false) {
  return {process, 1000 + process.value, mib * kMiB, asked * kMiB, Time{since}, is_actor};
}

TEST(MemoryGuard, IsShortBelowItsShareOfTheTotal) {
  const MemoryGuard guard({.low = 0.02, .low_at_most = 512 * kMiB});
  EXPECT_TRUE(guard.is_short(kFull));
  EXPECT_FALSE(guard.is_short({10 * kGiB, kGiB, ""}));
  EXPECT_TRUE(guard.is_short({1000 * kGiB, 500 * kMiB, ""}));
  EXPECT_FALSE(guard.is_short({1000 * kGiB, 600 * kMiB, ""})) << "enough, however large it is";
  EXPECT_FALSE(guard.is_short({0, 0, ""})) << "unknown";
}

TEST(MemoryGuard, WhoTakesMoreThanItAskedForEndsFirst) {
  MemoryGuard guard;
  const auto victim = guard.choose(
      kFull, {use(1, 900, 0, 9s), use(2, 300, 200, 1s), use(3, 250, 200, 5s), use(4, 190, 200, 9s)},
      kNow);
  ASSERT_TRUE(victim);
  EXPECT_EQ(victim->process, ProcessIndex{2});
  EXPECT_EQ(victim->why,
            "process 1002 was ended, since of 10240 MiB of the machine only 10 MiB were left; it "
            "used 300 MiB, more than the 200 MiB that it had asked for");
}

TEST(MemoryGuard, ThenTheNewestTaskThenTheNewestActor) {
  const auto newest = [](const std::vector<WorkerMemory>& uses) {
    MemoryGuard guard;
    const auto victim = guard.choose(kFull, uses, kNow);
    return victim ? victim->process : 0;
  };
  EXPECT_EQ(newest({use(1, 900, 0, 1s), use(2, 10, 100, 3s), use(3, 10, 0, 2s)}), ProcessIndex{2});
  EXPECT_EQ(newest({use(1, 10, 0, 1s), use(2, 900, 0, 3s, true)}), ProcessIndex{1});
  EXPECT_EQ(newest({use(1, 10, 0, 1s, true), use(2, 900, 0, 3s, true)}), ProcessIndex{2});
  EXPECT_EQ(newest({}), ProcessIndex{});
}

/// The zygote may be too busy to reap the worker that was chosen.
TEST(MemoryGuard, WhoWasChosenIsNotChosenAgain) {
  MemoryGuard guard({.pause = 1s, .patience = 5s});
  std::vector<WorkerMemory> uses{use(1, 10, 0, 1s), use(2, 10, 0, 2s)};
  ASSERT_EQ(guard.choose(kFull, uses, kNow)->process, ProcessIndex{2});
  uses[1].ending = true;
  EXPECT_FALSE(guard.choose(kFull, uses, kNow + 2s)) << "the memory comes back when it has ended";
  const auto next = guard.choose(kFull, uses, kNow + 5s);
  ASSERT_TRUE(next) << "it has not, for too long";
  EXPECT_EQ(next->process, ProcessIndex{1});
  uses[0].ending = true;
  for (WorkerMemory& one : uses) one.bytes = 0;
  EXPECT_FALSE(guard.choose(kFull, uses, kNow + 20s)) << "zombies have nothing to give";
  uses.push_back(use(3, 10, 0, 1s));
  EXPECT_EQ(guard.choose(kFull, uses, kNow + 21s)->process, ProcessIndex{3})
      << "and hold up nobody";
}

TEST(MemoryGuard, OneAtATime) {
  MemoryGuard guard({.pause = 1s});
  const std::vector<WorkerMemory> uses{use(1, 10, 0, 1s), use(2, 10, 0, 2s)};
  EXPECT_TRUE(guard.choose(kFull, uses, kNow));
  EXPECT_FALSE(guard.choose(kFull, uses, kNow + 999ms));
  EXPECT_TRUE(guard.choose(kFull, uses, kNow + 1s));
}

}  // namespace
}  // namespace troupe::agent::memory_guard_test
