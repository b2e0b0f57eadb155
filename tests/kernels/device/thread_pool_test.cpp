// Tests the pool of threads that compute one operation together.
#include "troupe/kernels/device/internal/thread_pool.hpp"

#include "troupe/kernels/denormals/denormals.hpp"
#include "troupe/kernels/device/device.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <limits>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace troupe::kernels::internal {
namespace {

/// Runs parts until all threads of the pool have been in one at the same time; returns the
/// threads.
std::set<std::thread::id> threads_of(ThreadPool& pool) {
  std::mutex mutex;
  std::set<std::thread::id> seen;
  pool.run(pool.threads(), 1, [&](std::int64_t, std::int64_t) {
    const auto all = static_cast<std::size_t>(pool.threads());
    for (bool met = false; !met; std::this_thread::yield()) {
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
      met = seen.size() == all;
    }
  });
  return seen;
}

int kernel_threads() {
  int count = 0;
  std::FILE* file = std::fopen("/proc/self/status", "r");
  char line[256];
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr)
    std::sscanf(line, "Threads: %d", &count);
  if (file != nullptr) std::fclose(file);
  return count;
}

TEST(ThreadPool, EveryElementIsInOnePartOfTheGrainAtLeast) {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (const std::int64_t n : {0, 1, 5, 31, 33, 1025}) {
      for (const std::int64_t grain : {1, 8, 100}) {
        std::vector<std::atomic<int>> times(static_cast<std::size_t>(n));
        pool.run(n, grain, [&](std::int64_t first, std::int64_t end) {
          EXPECT_GE(end - first, std::min(grain, n));
          for (std::int64_t i = first; i < end; ++i) ++times[static_cast<std::size_t>(i)];
        });
        for (const auto& t : times) ASSERT_EQ(t, 1);
      }
    }
  }
}

TEST(ThreadPool, ComputesOnAsManyThreadsAsItWasTold) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    const std::set<std::thread::id> seen = threads_of(pool);
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(threads));
    EXPECT_EQ(seen.count(std::this_thread::get_id()), 1u);
  }
}

TEST(ThreadPool, HelpersThatSleepAreWoken) {
  ThreadPool pool(2);
  for (int round = 0; round < 50; ++round) {
    std::this_thread::sleep_for(20 * ThreadPool::kSpin);  // by then the helpers sleep
    std::atomic<int> inside{0};
    const Time until = steady_now() + std::chrono::seconds(20);
    pool.run(2, 1, [&](std::int64_t, std::int64_t) {  // each part waits for the other
      ++inside;
      while (inside < 2 && steady_now() < until) std::this_thread::yield();
      EXPECT_EQ(inside, 2) << "round " << round;
    });
  }
}

TEST(ThreadPool, WhatAnyPartThrowsReachesTheCallerOnceAllAreDone) {
  const std::thread::id caller = std::this_thread::get_id();
  for (const bool of_caller : {true, false}) {
    ThreadPool pool(2);
    std::atomic<int> inside{0}, ended{0};
    const auto part = [&](std::int64_t, std::int64_t) {
      const Time until = steady_now() + std::chrono::seconds(20);
      ++inside;
      while (inside < 2 && steady_now() < until) std::this_thread::yield();
      ++ended;
      if ((std::this_thread::get_id() == caller) == of_caller) throw std::runtime_error("mine");
    };
    EXPECT_THROW(pool.run(2, 1, part), std::runtime_error);
    EXPECT_EQ(ended, 2);
  }
}

TEST(ThreadPool, StartsNoThreadBeforeThereIsWorkForTwo) {
  const int before = kernel_threads();
  ThreadPool pool(3);
  pool.run(100, 100, [](std::int64_t, std::int64_t) {});
  EXPECT_EQ(kernel_threads(), before);
  threads_of(pool);
  EXPECT_EQ(kernel_threads(), before + 2);
}

TEST(ThreadPool, ManyShortCallsAreAllDone) {
  ThreadPool pool(3);
  std::atomic<std::int64_t> total{0};
  for (int call = 0; call < 20000; ++call)
    pool.run(6, 1, [&](std::int64_t first, std::int64_t end) {
      total.fetch_add(end - first, std::memory_order_relaxed);
    });
  EXPECT_EQ(total, 6 * 20000);
}

TEST(ThreadPool, HelpersComputeInTheCallersFloatMode) {
  ThreadPool pool(2);
  const auto quotients = [&] {
    std::vector<float> result(2);
    std::atomic<int> here{0};
    pool.run(2, 1, [&](std::int64_t first, std::int64_t) {
      for (++here; here < 2;) std::this_thread::yield();
      const volatile float least = std::numeric_limits<float>::min();
      result[static_cast<std::size_t>(first)] = least / 4;
    });
    return result;
  };
  EXPECT_NE(quotients(), std::vector<float>(2, 0.0f));
  const FlushDenormals flush;
  EXPECT_EQ(quotients(), std::vector<float>(2, 0.0f));
}

TEST(ThreadPool, HelpersBlockAllSignals) {
  ThreadPool pool(2);
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> here{0}, blocked{0};
  pool.run(2, 1, [&](std::int64_t, std::int64_t) {
    for (++here; here < 2;) std::this_thread::yield();
    if (std::this_thread::get_id() == caller) return;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    for (const int signal : {SIGINT, SIGTERM, SIGCHLD, SIGUSR1})
      blocked += sigismember(&mask, signal);
  });
  EXPECT_EQ(blocked, 4);
}

TEST(ThreadPool, ThrowsWhatAPartThrewOnceAllAreDone) {
  ThreadPool pool(2);
  std::atomic<int> done{0};
  EXPECT_THROW(pool.run(8, 1,
                        [&](std::int64_t first, std::int64_t) {
                          ++done;
                          if (first == 3) throw std::runtime_error("three");
                        }),
               std::runtime_error);
  EXPECT_EQ(done, 8);
  threads_of(pool);  // the pool still works
}

TEST(ThreadPool, ACallFromInsideAPartRunsOnThatThread) {
  ThreadPool pool(2);
  std::atomic<int> strangers{0};
  pool.run(2, 1, [&](std::int64_t, std::int64_t) {
    const std::thread::id outer = std::this_thread::get_id();
    pool.run(8, 1, [&](std::int64_t, std::int64_t) {
      if (std::this_thread::get_id() != outer) ++strangers;
    });
  });
  EXPECT_EQ(strangers, 0);
}

TEST(ThreadPool, AForkComputesAloneAndEnds) {
  ThreadPool pool(2);
  threads_of(pool);
  const pid_t child = ::fork();
  if (child == 0) {
    int parts = 0;
    {
      ThreadPool moved(2);  // a pool that the child makes starts helpers
      const bool own = threads_of(moved).size() == 2;
      pool.run(8, 1, [&](std::int64_t first, std::int64_t end) {
        parts += static_cast<int>(end - first);
      });
      if (!own) parts = 0;
    }
    pool.~ThreadPool();
    ::_exit(parts == 8 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace troupe::kernels::internal
