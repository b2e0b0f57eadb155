// Tests that no process is left after a driver or a whole cluster has been killed or has ended.
#include "tests/eventually.hpp"
#include "tests/leeway.hpp"
#include "troupe/troupe.hpp"

#include <dirent.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

extern char** environ;

namespace cleanup_test {
namespace {

using namespace std::chrono_literals;

struct Idle {
  int ping() { return 1; }
};
int busy(int) {
  for (;;) std::this_thread::sleep_for(1s);
}

/// Returns the living processes of this session and executable, according to /proc, without
/// zombies.
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

/// Starts a driver as a process of its own: this executable, running one of the tests below.
pid_t start_driver(const char* test) {
  pid_t pid = 0;
  char program[] = "/proc/self/exe";
  std::string filter_text = std::string("--gtest_filter=Driver.DISABLED_") + test;
  char* filter = filter_text.data();
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

TEST(Driver, DISABLED_HoldsACluster) {
  troupe::Session session({.cpus = 1, .nodes = 3});
  troupe::Context ctx = session.context();
  std::vector<troupe::Ref<int>> all;
  for (const auto& node : ctx.cluster().nodes)
    all.push_back(ctx.with({.placement = troupe::Placement::on(node.id)}).submit<busy>(1));
  (void)ctx.wait(all, {.timeout = 60s});
}

enum class Victims { driver, all };

/// Runs three rounds, or a hundred with TROUPE_LONG_TESTS. `Victims::all` kills every process of
/// the cluster at once.
void nothing_is_left(const char* test, std::size_t processes, Victims victims = Victims::driver) {
  const std::set<int> before = ours();
  const int rounds = std::getenv("TROUPE_LONG_TESTS") != nullptr ? 100 : 3;
  for (int round = 0; round < rounds; ++round) {
    const pid_t driver = start_driver(test);
    ASSERT_GT(driver, 0);
    EXPECT_TRUE(eventually([&] { return ours().size() >= before.size() + processes; }));
    if (victims == Victims::all)
      for (const int pid : ours())
        if (before.count(pid) == 0 && pid != driver) ::kill(pid, SIGKILL);
    ::kill(driver, SIGKILL);
    int status = 0;
    ::waitpid(driver, &status, 0);
    eventually([&] { return ours() == before; }, 5s);
    ASSERT_EQ(ours(), before) << "after round " << round;
  }
}

TEST(Cleanup, NothingIsLeftAfterTheDriverIsKilled) {
  nothing_is_left("HoldsANode", 5);  // driver, agent, zygote, two workers
}

TEST(ClusterCleanup, NothingIsLeftAfterTheDriverIsKilled) {
  nothing_is_left("HoldsACluster", 11);  // driver and control; per node agent, zygote and worker
}

TEST(Cleanup, NothingIsLeftAfterAllOfANodeIsKilled) {
  nothing_is_left("HoldsANode", 5, Victims::all);
}

TEST(ClusterCleanup, NothingIsLeftAfterAllOfAClusterIsKilled) {
  nothing_is_left("HoldsACluster", 11, Victims::all);
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
  eventually([&] { return ours() == before; }, 5s);
  EXPECT_EQ(ours(), before);
}

TEST(Cleanup, AProgramThatEndsBeforeRunInItsZygoteIsNamed) {
  ::setenv("TROUPE_TEST_EXIT_EARLY", "1", 1);
  const auto begun = std::chrono::steady_clock::now();
  try {
    troupe::Session session({.cpus = 1});
    troupe::Context ctx = session.context();
    ctx.get(ctx.submit<[](int x) { return x; }>(1), 20s);
    ADD_FAILURE() << "no error";
  } catch (const troupe::Unavailable& error) {
    EXPECT_NE(error.message().find("zygote"), std::string::npos) << error.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 5s);
  ::unsetenv("TROUPE_TEST_EXIT_EARLY");
}

TEST(Cleanup, WithoutDescriptorsTheErrorSaysSoWithinItsBound) {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{24, 24};
  const pid_t child = ::fork();
  if (child == 0) {  // single-threaded, since no session is open
    ::setrlimit(RLIMIT_NOFILE, &few);
    int code = 1;
    try {
      troupe::Session session({.cpus = 1});
      troupe::Context ctx = session.context();
      std::vector<troupe::Actor<Idle>> actors;  // each actor needs descriptors
      for (int i = 0; i < 16; ++i) actors.push_back(ctx.spawn<Idle>());
      for (auto& actor : actors) ctx.get(actor.call<&Idle::ping>(), 20s);
      code = 2;
    } catch (const troupe::Error& error) {
      code = error.code() == troupe::Code::timed_out ? 3 : 0;
    }
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "2: it worked all the same; 3: it hung";
}

/// Returns the child of process `of` that has this name in /proc, or 0.
int child_named(const std::string& name, int of = ::getpid()) {
  int found = 0;
  DIR* proc = ::opendir("/proc");
  while (const dirent* entry = ::readdir(proc)) {
    std::ifstream stat(std::string("/proc/") + entry->d_name + "/stat");
    std::string pid, comm, state, parent;
    if (stat >> pid >> comm >> state >> parent && comm == "(" + name + ")" &&
        parent == std::to_string(of) && state != "Z")
      found = std::atoi(pid.c_str());
  }
  ::closedir(proc);
  return found;
}

/// Returns whether the process sleeps at each of 20 looks. A process that waits only for a CPU is
/// runnable, not asleep.
bool sleeps(int pid) {
  for (int look = 0; look < 20; ++look, std::this_thread::sleep_for(2ms)) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string id, name, state;
    if (!(stat >> id >> name >> state) || state != "S") return false;
  }
  return true;
}

TEST(Cleanup, AnAgentSleepsWhileADeadWorkerIsNotReapedYet) {
  troupe::Session session({.cpus = 1});
  troupe::Context ctx = session.context();
  const int worker = ctx.get(ctx.submit<[](int) { return int(::getpid()); }>(0), 20s);
  const int agent = child_named("troupe-agent");
  const int zygote = child_named("troupe-zygote", agent);
  ASSERT_GT(zygote, 0);
  EXPECT_TRUE(eventually([&] { return sleeps(agent); })) << "it makes memory ready at first";
  ::kill(zygote, SIGSTOP);
  ::kill(worker, SIGKILL);
  ASSERT_TRUE(eventually([&] { return ours().count(worker) == 0; })) << "its connection is open";
  EXPECT_TRUE(eventually([&] { return sleeps(agent); }, 5s));
  ::kill(zygote, SIGCONT);
  EXPECT_EQ(ctx.get(ctx.submit<[](int x) { return x; }>(7), 20s), 7);
}

TEST(Cleanup, AKilledAgentEndsEveryWaitAndTakesItsNodeAlong) {
  const std::set<int> before = ours();
  {
    troupe::Session session({.cpus = 2});
    troupe::Context ctx = session.context();
    auto counter = ctx.spawn<Idle>();
    EXPECT_EQ(ctx.get(counter.call<&Idle::ping>(), 20s), 1);
    auto never = ctx.submit<busy>(1);
    EXPECT_THROW(ctx.get(never, 50ms), troupe::TimedOut);
    const int agent = child_named("troupe-agent");
    ASSERT_GT(agent, 0);
    const auto begun = std::chrono::steady_clock::now();
    ::kill(agent, SIGKILL);
    EXPECT_THROW(ctx.get(never, 20s), troupe::Unavailable);
    EXPECT_LT(std::chrono::steady_clock::now() - begun, kLeeway * 1s);
    EXPECT_THROW(ctx.submit<busy>(2), troupe::Unavailable) << "and nothing new is accepted";
  }
  eventually([&] { return ours() == before; }, 5s);
  EXPECT_EQ(ours(), before);
}

}  // namespace
}  // namespace cleanup_test
