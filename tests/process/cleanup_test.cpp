#include "troupe/troupe.hpp"

#include <dirent.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <thread>

extern char** environ;

namespace {

using namespace std::chrono_literals;

int busy(int) {
  for (;;) std::this_thread::sleep_for(1s);
}

/// Living processes of this session and executable, by what /proc says; zombies do not count.
std::set<int> ours() {
  std::set<int> found;
  char self[4096], other[4096];
  const ssize_t n = ::readlink("/proc/self/exe", self, sizeof self);
  DIR* proc = ::opendir("/proc");
  while (const dirent* entry = ::readdir(proc)) {
    const int pid = std::atoi(entry->d_name);
    if (pid <= 0 || ::getsid(pid) != ::getsid(0)) continue;
    const std::string base = std::string("/proc/") + entry->d_name;
    const ssize_t m = ::readlink((base + "/exe").c_str(), other, sizeof other);
    if (m == n && std::string(self, static_cast<std::size_t>(n)) ==
                      std::string(other, static_cast<std::size_t>(m)))
      found.insert(pid);
  }
  ::closedir(proc);
  return found;
}

/// A driver of its own, started from this executable with the one test below.
pid_t start_driver() {
  pid_t pid = 0;
  char program[] = "/proc/self/exe";
  char filter[] = "--gtest_filter=Driver.DISABLED_HoldsANode";
  char also[] = "--gtest_also_run_disabled_tests";
  char* argv[] = {program, filter, also, nullptr};
  ::setenv("TROUPE_TEST_CHILD", "1", 1);
  return ::posix_spawn(&pid, program, nullptr, nullptr, argv, environ) == 0 ? pid : 0;
}

TEST(Driver, DISABLED_HoldsANode) {
  troupe::Session session({.cpus = 2});
  troupe::Context ctx = session.context();
  auto a = ctx.submit<busy>(1);
  auto b = ctx.submit<busy>(2);
  (void)ctx.try_get(a, 60s);
}

TEST(Cleanup, NothingIsLeftAfterTheDriverIsKilled) {
  const std::set<int> before = ours();
  for (int round = 0; round < 3; ++round) {
    const pid_t driver = start_driver();
    ASSERT_GT(driver, 0);
    const auto deadline = std::chrono::steady_clock::now() + 10s;
    while (ours().size() < before.size() + 5 && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(2ms);  // driver, agent, zygote, two workers
    EXPECT_GE(ours().size(), before.size() + 5);
    ::kill(driver, SIGKILL);
    int status = 0;
    ::waitpid(driver, &status, 0);
    const auto limit = std::chrono::steady_clock::now() + 5s;
    while (ours() != before && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(2ms);
    EXPECT_EQ(ours(), before);
  }
}

TEST(Cleanup, AnEndedSessionLeavesNoProcessAndNoDescriptor) {
  const auto descriptors = [] {
    std::size_t count = 0;
    DIR* folder = ::opendir("/proc/self/fd");
    while (::readdir(folder) != nullptr) ++count;
    ::closedir(folder);
    return count;
  };
  const std::set<int> before = ours();
  {
    troupe::Session session({.cpus = 1});
  }
  const std::size_t open_before = descriptors();
  for (int round = 0; round < 10; ++round) {
    troupe::Session session({.cpus = 1});
    troupe::Context ctx = session.context();
    EXPECT_EQ(ctx.get(ctx.submit<[](int x) { return x; }>(round), 20s), round);
  }
  EXPECT_EQ(descriptors(), open_before);
  const auto limit = std::chrono::steady_clock::now() + 5s;
  while (ours() != before && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(2ms);
  EXPECT_EQ(ours(), before);
}

}  // namespace
