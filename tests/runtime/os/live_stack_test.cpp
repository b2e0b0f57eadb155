// Tests the stacks of children that loop, wait for a lock, stand still or are gone.
#include "troupe/runtime/os/live_stack.hpp"

#include "tests/eventually.hpp"
#include "tests/leeway.hpp"
#include "troupe/runtime/base/plug_in.hpp"
#include "troupe/runtime/base/wait.hpp"
#include "troupe/runtime/os/internal/stack_door.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <fstream>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::os {
namespace live_stack_test {

using namespace std::chrono_literals;

volatile int* g_count = nullptr;  // in memory that a child shares
[[gnu::noinline]] void spins_here() {
  for (;;) *g_count = 1;
}
[[gnu::noinline]] void waits_for_a_lock() {
  static std::timed_mutex mutex;
  mutex.lock();
  mutex.lock();  // NOLINT(clang-analyzer-*): for ever
  *g_count = 1;
}

/// Sleeps in the kernel, where no signal but SIGKILL reaches it, until its child has ended.
[[gnu::noinline]] void sleeps_in_the_kernel() {
  const auto child = static_cast<int>(syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0));
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    *g_count = getpid();
    pause();
    _exit(0);
  }
  *g_count = -1;
  for (;;) pause();
}

namespace {

class LiveStacks : public testing::Test {
 protected:
  void SetUp() override {
    if (kLeeway > 2) GTEST_SKIP() << "a sanitizer's process has another stack";
#ifndef TROUPE_HAS_LIBDW
    GTEST_SKIP() << "this build has no libdw";
#endif
    void* const memory =
        mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    g_count = static_cast<volatile int*>(memory);
  }
  void TearDown() override {
    end();
    if (g_count != nullptr) munmap(const_cast<int*>(std::exchange(g_count, nullptr)), sizeof(int));
  }
  void end() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = 0;
  }
  void start(const std::function<void()>& work) {
    child_ = fork();
    if (child_ == 0) {
      prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);  // a sibling reads its stack
      work();
      _exit(0);
    }
  }
  void start_loop() {
    start(spins_here);
    EXPECT_TRUE(eventually([] { return *g_count == 1; }));
  }
  char state() const {
    const std::string text = thread_states(child_);
    return text.find("stopped") != std::string::npos    ? 'T'
           : text.find("device") != std::string::npos   ? 'D'
           : text.find("sleeping") != std::string::npos ? 'S'
                                                        : 'R';
  }
  void await(char wanted) const {
    ASSERT_TRUE(eventually([&] { return state() == wanted; })) << thread_states(child_);
  }
  /// Waits until the reader has attached to the child.
  void await_attach(const LiveStack& live) const {
    const std::string wanted = "TracerPid:\t" + std::to_string(live.child());
    ASSERT_TRUE(eventually([&] {
      std::ifstream status("/proc/" + std::to_string(child_) + "/status");
      for (std::string line; std::getline(status, line);)
        if (line == wanted) return true;
      return false;
    }));
  }
  std::string stack() {
    auto live = LiveStack::start(child_, StackLines::By::fork);
    if (!live) return live.error().message();
    const Time until = steady_now() + LiveStack::kLimit;
    while (!live->read() && steady_now() < until) {
      pollfd entry{live->fd(), POLLIN, 0};
      wait_for({&entry, 1}, until - steady_now());
    }
    return live->text();
  }

  pid_t child_ = 0;
};

TEST_F(LiveStacks, NamesTheFunctionOfALoopThatThenGoesOn) {
  start_loop();
  const std::string text = stack();
  EXPECT_NE(text.find("live_stack_test::spins_here()"), std::string::npos) << text;
  EXPECT_EQ(text.find("thread " + std::to_string(child_) + " ("), 0u) << text;
  EXPECT_EQ(state(), 'R') << thread_states(child_);
}

TEST_F(LiveStacks, NamesTheFunctionThatWaitsForALock) {
  start(waits_for_a_lock);
  await('S');
  const std::string text = stack();
  EXPECT_NE(text.find("live_stack_test::waits_for_a_lock()"), std::string::npos) << text;
}

TEST_F(LiveStacks, AStoppedProcessStaysStopped) {
  start_loop();
  ::kill(child_, SIGSTOP);
  await('T');
  const std::string text = stack();
  EXPECT_NE(text.find("live_stack_test::spins_here()"), std::string::npos) << text;
  await('T');  // the kernel stops it again once the reader has left
}

TEST_F(LiveStacks, AProcessGoesOnWhoseReaderIsKilledBeforeItSawTheAttach) {
  start(sleeps_in_the_kernel);
  ASSERT_TRUE(eventually([] { return *g_count > 0; }));
  await('D');
  {
    auto live = LiveStack::start(child_, StackLines::By::fork);
    ASSERT_TRUE(live) << live.error().message();
    await_attach(*live);
  }
  ::kill(*g_count, SIGKILL);
  EXPECT_TRUE(eventually([] { return *g_count == -1; })) << thread_states(child_);
}

TEST_F(LiveStacks, AStoppedProcessStaysStoppedWhenItsReaderIsKilled) {
  start_loop();
  ::kill(child_, SIGSTOP);
  await('T');
  {
    const auto killed = LiveStack::start(child_, StackLines::By::fork);
  }
  await('T');
}

TEST_F(LiveStacks, AProcessThatIsGoneHasAReason) {
  start([] {});
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOWAIT), 0);
  const std::string text = stack();
  EXPECT_NE(text.find("(stacks are missing: "), std::string::npos) << text;
}

TEST(ThreadStates, OfNoProcessAreEmpty) {
  EXPECT_EQ(thread_states(0x7fffffff), "");
  EXPECT_NE(thread_states(getpid()).find("thread " + std::to_string(getpid()) + " ("),
            std::string::npos);
}

TEST(ThreadStates, OfManyThreadsAreCounted) {
  constexpr int kThreads = 100;
  std::mutex held;
  std::vector<std::thread> threads;
  std::string text;
  {
    const std::lock_guard lock(held);
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&] { const std::lock_guard wait(held); });
    text = thread_states(getpid());
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(text.find(" more threads\n"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 65) << text;
}

}  // namespace
}  // namespace live_stack_test
}  // namespace troupe::os
