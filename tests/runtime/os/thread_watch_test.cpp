// Tests whether a thread that computes can be told from one that waits.
#include "troupe/runtime/os/thread_watch.hpp"

#include <gtest/gtest.h>
#include <atomic>
#include <thread>

namespace troupe::os {
namespace {

using namespace std::chrono_literals;

/// Looks at `watch` from another thread each millisecond, until `over`. Returns whether the watched
/// thread has ever waited between two looks.
bool ever_waits(const ThreadWatch& watch, const std::atomic<bool>& over) {
  ThreadWatch::Look last;
  bool waits = false;
  while (!over && !waits) {
    waits = watch.waited_since(last);
    std::this_thread::sleep_for(1ms);
  }
  return waits;
}

TEST(ThreadWatch, SeesAWait) {
  const ThreadWatch watch;
  bool waits = false;
  std::thread([&] {
    const std::atomic<bool> never{false};
    waits = ever_waits(watch, never);
  }).join();
  EXPECT_TRUE(waits);
}

TEST(ThreadWatch, SeesThatAThreadSleeps) {
  const ThreadWatch watch;
  std::atomic<bool> over{false};
  std::atomic<bool> waits{false};
  std::thread other([&] { waits = ever_waits(watch, over); });
  for (int i = 0; i < 100 && !waits; ++i) std::this_thread::sleep_for(1ms);
  over = true;
  other.join();
  EXPECT_TRUE(waits);
}

TEST(ThreadWatch, TakesAComputingThreadForBusy) {
  const ThreadWatch watch;
  std::atomic<bool> over{false};
  bool waits = true;
  std::thread other([&] { waits = ever_waits(watch, over); });
  const Time end = steady_now() + 50ms;
  while (steady_now() < end) {
  }
  over = true;
  other.join();
  EXPECT_FALSE(waits);
}

TEST(ThreadWatch, KnowsItsThread) {
  const ThreadWatch watch;
  EXPECT_TRUE(watch.is_this_thread());
  std::thread([&watch] { EXPECT_FALSE(watch.is_this_thread()); }).join();
}

}  // namespace
}  // namespace troupe::os
