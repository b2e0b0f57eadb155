// Tests that what a hanging thread uses outlives its owner, from many threads at once.
#include "troupe/runtime/base/leave_behind.hpp"

#include "troupe/runtime/base/signal_masked_thread.hpp"

#include <gtest/gtest.h>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace troupe {
namespace leave_behind_test {
namespace {

/// Objects of Shared that are gone.
std::atomic<int> destroyed = 0;

/// What a thread uses: it hangs until `is_mended`, and then reads and writes its memory.
struct Shared {
  Shared() = default;
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { ++destroyed; }
  void start() {
    thread = SignalMaskedThread("hangs", [this] {
      is_mended.wait(false);
      written = std::string(1000, 'x') + text;
    });
  }

  std::atomic<bool> is_mended = false;
  std::string text = std::string(1000, 'y'), written;
  SignalMaskedThread thread;
};

void mend(Shared& shared) {
  shared.is_mended = true;
  shared.is_mended.notify_all();
  shared.thread.join();
}

TEST(LeaveBehind, KeepsWhatAThreadUsesWhoseOwnerHasGone) {
  std::weak_ptr<Shared> left;
  {
    const auto shared = std::make_shared<Shared>();
    shared->start();
    left = shared;
    leave_behind(shared);
  }
  const std::shared_ptr<Shared> found = left.lock();
  ASSERT_NE(found, nullptr) << "the thread that hangs would use freed memory";
  mend(*found);
  EXPECT_EQ(found->written.size(), 2000u);
  EXPECT_EQ(destroyed, 0) << "a thread that goes on is left all the same";
}

TEST(LeaveBehind, KeepsAllThatManyThreadsLeaveAtOnce) {
  constexpr int kThreads = 8, kEach = 100;
  std::vector<std::weak_ptr<int>> left(std::size_t{kThreads} * kEach);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&left, t] {
        for (int i = 0; i < kEach; ++i) {
          auto number = std::make_shared<int>(t * kEach + i);
          left[static_cast<std::size_t>(*number)] = number;
          leave_behind(std::move(number));
        }
      });
  }
  for (std::size_t i = 0; i < left.size(); ++i) {
    const auto number = left[i].lock();
    ASSERT_NE(number, nullptr) << i;
    EXPECT_EQ(*number, static_cast<int>(i));
  }
}

}  // namespace
}  // namespace leave_behind_test
}  // namespace troupe
