// Tests that what visitors use ends after them, and that none enters later.
#include "troupe/runtime/client/visitors.hpp"

#include <gtest/gtest.h>
#include <atomic>
#include <thread>
#include <vector>

namespace troupe::client {
namespace {

TEST(Visitors, LeaveBeforeTheEndAndNoneEntersLater) {
  for (int round = 0; round < 200; ++round) {
    Visitors visitors;
    std::atomic<bool> alive{true};
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i)
      threads.emplace_back([&] {
        while (const Visitors::Visit visit{visitors}) wrong += !alive;
      });
    visitors.close();
    alive = false;
    EXPECT_FALSE(Visitors::Visit(visitors));
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
  }
}

TEST(Visitors, AVisitOfNothingIsNone) {
  EXPECT_FALSE(Visitors::Visit());
}

}  // namespace
}  // namespace troupe::client
