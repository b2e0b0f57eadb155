// Tests a driver, an agent and a worker that share one CPU: which process is woken, and which
// process yields the CPU to which.
#include "tests/eventually.hpp"
#include "tests/process/processes.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace one_cpu_test {
namespace {

using namespace std::chrono_literals;
using troupe::Context;
using troupe::Ref;
using Clock = std::chrono::steady_clock;

constexpr auto kBound = 20s;

/// Uses `us` microseconds of its thread's CPU time.
int burn(int us) {
  const auto used = [] {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1'000'000 + t.tv_nsec / 1000;
  };
  for (const auto until = used() + us; used() < until;) {
  }
  return us;
}
struct Burner {
  int burn_for(int us) { return burn(us); }
};
/// Returns how often this thread has given up the CPU to wait.
long sleeps() {
  rusage used{};
  getrusage(RUSAGE_THREAD, &used);
  return used.ru_nvcsw;
}
/// Returns the CPU time that a process has used, in milliseconds.
double cpu_ms(int pid) {
  double ns = 0;
  std::ifstream("/proc/" + std::to_string(pid) + "/schedstat") >> ns;
  return ns / 1e6;
}
/// Runs `body` with a session whose processes all share the one CPU that this thread may use.
template <class Body>
void on_one_cpu(Body body) {
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    troupe::Session session({.cpus = 1});
    Context ctx = session.context();
    for (int i = 0; i < 100; ++i) ctx.get(ctx.submit<burn>(5), kBound);  // run times are learnt
    body(ctx);
  }).join();
}

/// How many replies share a wake-up depends on their pace: a reply waits up to 100 us for others.
TEST(OneCpu, RepliesOfSmallTasksShareTheWakeUpOfTheirCaller) {
  on_one_cpu([](Context& ctx) {
    constexpr int kTasks = 1000;
    std::vector<double> of_those_due;
    for (int i = 0; i < 9; ++i) {
      std::vector<Ref<int>> refs;
      for (int k = 0; k < kTasks; ++k) refs.push_back(ctx.submit<burn>(10));
      const long before = sleeps();
      const auto begun = Clock::now();
      for (const auto& ref : refs) ctx.get(ref, kBound);
      const auto due = (Clock::now() - begun) / 100us;
      if (due < kTasks * 2 / 5)
        of_those_due.push_back(static_cast<double>(sleeps() - before) / static_cast<double>(due));
    }
    if (of_those_due.size() < 5) GTEST_SKIP() << "40 us a task and more: each may wake its caller";
    std::sort(of_those_due.begin(), of_those_due.end());
    EXPECT_LE(of_those_due[of_those_due.size() / 2], 2);
  });
}

/// Nothing announces that the next call takes longer than those before it, and the caller of an
/// actor does not look at its ring unasked. After a thousand calls the worker's I/O thread has
/// been asleep for a while.
TEST(OneCpu, AReplyDoesNotWaitForALongCallThatFollowsSmallOnes) {
  on_one_cpu([](Context& ctx) {
    constexpr auto kLong = 200ms;
    const auto actor = ctx.spawn<Burner>();
    for (const int small : {30, 1000, 30, 1000, 30, 1000}) {
      std::vector<Ref<int>> refs;
      for (int k = 0; k < small; ++k) refs.push_back(actor.call<&Burner::burn_for>(5));
      const Ref<int> last = actor.call<&Burner::burn_for>(static_cast<int>(kLong / 1us));
      const auto begun = Clock::now();
      for (const auto& ref : refs) ctx.get(ref, kBound);
      const auto took = Clock::now() - begun;
      ctx.get(last, kBound);
      EXPECT_LT(took, (Clock::now() - begun) / 2) << small << " small ones";
    }
  });
}

TEST(OneCpu, MemoryIsPreparedOnceTheProgramsLeaveTheCpu) {
  on_one_cpu([](Context& ctx) {
    const auto agents = our_processes("troupe-agent");
    ASSERT_EQ(agents.size(), 1u);
    const double before = cpu_ms(agents[0].pid);
    int tasks = 0;
    for (const auto until = Clock::now() + 300ms; Clock::now() < until; ++tasks)
      ctx.get(ctx.submit<burn>(1000), kBound);
    const double busy = cpu_ms(agents[0].pid) - before;
    // Another program on this CPU leaves it free as far as the agent can see.
    if (tasks + busy < 240) GTEST_SKIP() << "others took it, too: " << tasks << " tasks in 300 ms";
    EXPECT_TRUE(eventually([&] { return cpu_ms(agents[0].pid) - before > busy + 20; }))
        << "nothing was prepared, or all of it meanwhile, in " << busy << " ms";
    EXPECT_LT(busy, 20);
  });
}

TEST(OneCpu, PreparedMemoryThatAProgramTookIsReplaced) {
  on_one_cpu([](Context& ctx) {
    const auto agents = our_processes("troupe-agent");
    ASSERT_EQ(agents.size(), 1u);
    const auto used = [&] { return cpu_ms(agents[0].pid); };
    ASSERT_TRUE(eventually([&] {  // all memory that the agent prepares is ready
      const double before = used();
      std::this_thread::sleep_for(100ms);
      return used() - before < 1;
    }));
    const double before = used();
    const auto takes_an_extent = ctx.put(std::vector<char>(1 << 20, 'x'));
    EXPECT_TRUE(eventually([&] { return used() - before > 8; }, 5s)) << used() - before << " ms";
  });
}

}  // namespace
}  // namespace one_cpu_test
