// Tests actors on real processes of one node: state, order of calls, coroutines, errors, deaths
// and names.
#include "tests/eventually.hpp"
#include "tests/leeway.hpp"
#include "tests/process/tally.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace actors_test {
namespace {

using namespace std::chrono_literals;
using troupe::Actor;
using troupe::Context;
using troupe::Ref;

constexpr auto kBound = 20s;

struct Counter {
  int n = 0;
  int add(int k) { return n += k; }
  int pid() const { return ::getpid(); }
  int die() {
    ::raise(SIGKILL);
    return 0;
  }
  int bad() { throw std::out_of_range("beyond"); }
  troupe::Task<int> add_when_ready(Ref<int> k) {
    const int v = co_await k;
    co_return n += v;
  }
};
struct Log {
  std::vector<int> seen;
  void note(int x) { seen.push_back(x); }
  std::vector<int> all() const { return seen; }
};
struct Fussy {
  explicit Fussy(int x) {
    if (x < 0) throw std::invalid_argument("x is negative");
  }
  int ok() { return 1; }
};
struct Keeper {
  std::vector<Ref<std::vector<double>>> kept;
  void keep(Ref<std::vector<double>> r) { kept.push_back(r); }
  std::size_t count() const { return kept.size(); }
  Ref<std::vector<double>> give(int i) { return kept.at(static_cast<std::size_t>(i)); }
};
void go_to(int cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  EXPECT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
}
struct Pinned {
  void stay_on(int cpu) { go_to(cpu); }
  void rest() { std::this_thread::sleep_for(200us); }
  int same(int x) { return x; }
};
/// Returns how often this thread has given up the CPU to wait.
long sleeps() {
  rusage used{};
  getrusage(RUSAGE_THREAD, &used);
  return used.ru_nvcsw;
}
int call_through(Context& ctx, Actor<Counter> counter, int k) {
  return ctx.get(counter.call<&Counter::add>(k));
}
bool process_exists(int pid) {
  return ::kill(pid, 0) == 0;
}

TEST(Actors, KeepStateAndAnswerInOrder) {
  troupe::Session session({.cpus = 2});
  Context ctx = session.context();
  auto counter = ctx.spawn<Counter>(10);
  counter.tell<&Counter::add>(1);
  EXPECT_EQ(ctx.get(counter.call<&Counter::add>(5), kBound), 16);
  auto log = ctx.spawn<Log>();
  for (int i = 0; i < 2000; ++i) log.tell<&Log::note>(i);
  const auto seen = ctx.get(log.call<&Log::all>(), kBound);
  ASSERT_EQ(seen.size(), 2000u);
  for (int i = 0; i < 2000; ++i) ASSERT_EQ(seen[static_cast<std::size_t>(i)], i);
}

TEST(Actors, ACallWhoseArgumentIsNotReadyHoldsBackLaterOnes) {
  troupe::Session session({.cpus = 2});
  Context ctx = session.context();
  Scratch scratch;
  auto log = ctx.spawn<Log>();
  auto late = ctx.submit<hold_until>(scratch.path, 1);
  log.tell<&Log::note>(late);
  log.tell<&Log::note>(2);
  const auto all = log.call<&Log::all>();
  EXPECT_THROW(ctx.get(all, 100ms), troupe::TimedOut);
  Tally(scratch.path).add(1);
  EXPECT_EQ(ctx.get(all, kBound), (std::vector<int>{1, 2}));
}

TEST(Actors, ASuspendedCoroutineAdmitsOtherCalls) {
  troupe::Session session({.cpus = 2});
  Context ctx = session.context();
  Scratch scratch;
  auto counter = ctx.spawn<Counter>();
  auto slow = ctx.submit<hold_until>(scratch.path, 100);
  auto sum = counter.call<&Counter::add_when_ready>(slow);
  EXPECT_EQ(ctx.get(counter.call<&Counter::add>(1), kBound), 1) << "did not wait for the coroutine";
  Tally(scratch.path).add(100);
  EXPECT_EQ(ctx.get(sum, kBound), 101);
}

TEST(Actors, AThrowingMethodKeepsTheActorAlive) {
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  auto counter = ctx.spawn<Counter>(1);
  try {
    ctx.get(counter.call<&Counter::bad>(), kBound);
    FAIL() << "no exception";
  } catch (const troupe::TaskFailed& e) {
    EXPECT_TRUE(e.is<std::out_of_range>());
  }
  EXPECT_EQ(ctx.get(counter.call<&Counter::add>(1), kBound), 2);
}

TEST(Actors, AThrowingConstructorSurfacesOnTheFirstCall) {
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  auto fussy = ctx.spawn<Fussy>(-1);
  try {
    ctx.get(fussy.call<&Fussy::ok>(), kBound);
    FAIL() << "no exception";
  } catch (const troupe::ActorDied& e) {
    EXPECT_NE(e.message().find("x is negative"), std::string::npos) << e.what();
    EXPECT_EQ(e.outcome(), troupe::Outcome::not_executed);
  }
}

TEST(Actors, ADeathEndsCallsWithAnOutcome) {
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  auto counter = ctx.spawn<Counter>();
  auto fatal = counter.call<&Counter::die>();
  auto later = counter.call<&Counter::add>(1);
  try {
    ctx.get(fatal, kBound);
    FAIL() << "no exception";
  } catch (const troupe::ActorDied& e) {
    EXPECT_EQ(e.outcome(), troupe::Outcome::unknown) << e.what();
  }
  try {
    ctx.get(later, kBound);
    FAIL() << "no exception";
  } catch (const troupe::ActorDied& e) {
    EXPECT_EQ(e.outcome(), troupe::Outcome::not_executed) << e.what();
  }
}

TEST(Actors, RestartsExactlyAsOftenAsAllowed) {
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  auto counter = ctx.with(troupe::ActorOptions{.max_restarts = 2}).spawn<Counter>(7);
  for (int life = 0; life < 2; ++life) {
    EXPECT_EQ(ctx.get(counter.call<&Counter::add>(1), kBound), 8)
        << "a new life starts from the constructor";
    EXPECT_THROW(ctx.get(counter.call<&Counter::die>(), kBound), troupe::ActorDied);
  }
  EXPECT_EQ(ctx.get(counter.call<&Counter::add>(1), kBound), 8);
  EXPECT_THROW(ctx.get(counter.call<&Counter::die>(), kBound), troupe::ActorDied);
  EXPECT_THROW(ctx.get(counter.call<&Counter::add>(1), kBound), troupe::ActorDied);
}

TEST(Actors, HandlesCrossAndCount) {
  troupe::Session session({.cpus = 2});
  Context ctx = session.context();
  int pid = 0;
  {
    auto counter = ctx.spawn<Counter>();
    pid = ctx.get(counter.call<&Counter::pid>(), kBound);
    std::vector<Ref<int>> refs;
    for (int i = 0; i < 10; ++i) refs.push_back(ctx.submit<call_through>(counter, 1));
    for (auto& ref : refs) ctx.get(ref, kBound);
    EXPECT_EQ(ctx.get(counter.call<&Counter::add>(0), kBound), 10);
    EXPECT_TRUE(process_exists(pid));
  }
  EXPECT_TRUE(eventually([&] { return !process_exists(pid); }, 5s))
      << "the last handle is gone, the process is not";
}

TEST(Actors, NamesFindTheActorAndAreFreedWithIt) {
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  EXPECT_FALSE(ctx.find<Counter>("tally").has_value());
  {
    auto counter = ctx.with(troupe::ActorOptions{.name = "tally"}).spawn<Counter>(3);
    auto found = ctx.find<Counter>("tally");
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(ctx.get(found->call<&Counter::add>(1), kBound), 4);
    EXPECT_THROW(ctx.with(troupe::ActorOptions{.name = "tally"}).spawn<Counter>(0),
                 troupe::InvalidArgument);
    auto same =
        ctx.with(troupe::ActorOptions{.name = "tally", .get_if_exists = true}).spawn<Counter>(0);
    EXPECT_EQ(ctx.get(same.call<&Counter::add>(1), kBound), 5);
    EXPECT_THROW(ctx.find<Log>("tally"), troupe::InvalidArgument);
    ctx.kill(counter);
    EXPECT_THROW(ctx.get(counter.call<&Counter::add>(1), kBound), troupe::ActorDied);
  }
  auto again = ctx.with(troupe::ActorOptions{.name = "tally"}).spawn<Counter>(1);
  EXPECT_EQ(ctx.get(again.call<&Counter::add>(1), kBound), 2) << "the name is free again";
}

struct TwoLists {
  TwoLists(const std::vector<Ref<int>>& a, const std::vector<Ref<int>>& b)
      : n(a.size() + b.size()) {}
  std::size_t n;
  std::size_t count() const { return n; }
};

TEST(Actors, ConstructorArgumentsThatDoNotFitAFrameTogetherGoAsReferences) {
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  std::vector<Ref<int>> many;
  for (int i = 0; i < 510; ++i) many.push_back(ctx.put(i));
  const auto first = ctx.put(many);
  const auto second = ctx.put(many);
  auto actor = ctx.spawn<TwoLists>(first, second);
  EXPECT_EQ(ctx.get(actor.call<&TwoLists::count>(), kBound), 1020u);
}

TEST(Actors, RefsInActorStateOutliveTheirMakers) {
  troupe::Session session({.cpus = 2});
  Context ctx = session.context();
  auto keeper = ctx.spawn<Keeper>();
  {
    auto big = ctx.put(std::vector<double>(100'000, 2.0));
    keeper.tell<&Keeper::keep>(big);
    EXPECT_EQ(ctx.get(keeper.call<&Keeper::count>(), kBound), 1u);
  }
  auto back = keeper.call<&Keeper::give>(0);
  const auto values = ctx.get(back, kBound);
  EXPECT_EQ(values.size(), 100'000u);
  EXPECT_EQ(values[5], 2.0);
}

TEST(Actors, AWorkerThatWasKilledFromOutsideIsNoticedAtOnce) {
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  auto counter = ctx.with(troupe::ActorOptions{.max_restarts = 1}).spawn<Counter>(0);
  const int pid = ctx.get(counter.call<&Counter::pid>(), kBound);
  const auto begun = std::chrono::steady_clock::now();
  ::kill(pid, SIGKILL);
  while (true) {  // the first calls may still reach the dead incarnation
    const auto result = ctx.try_get(counter.call<&Counter::pid>(), kBound);
    if (result && *result != pid) break;
    ASSERT_LT(std::chrono::steady_clock::now() - begun, kBound) << "not restarted";
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, kLeeway * 1s);
}

/// Each side may use one CPU. Its affinity mask says nothing of the CPU on which its peer runs.
TEST(Actors, APairThatIsPinnedToACpuEachDoesNotSleepBetweenCalls) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &all)) cpus.push_back(cpu);
  if (cpus.size() < 2) GTEST_SKIP() << "needs two CPUs";
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  auto actor = ctx.spawn<Pinned>();
  ctx.get(actor.call<&Pinned::stay_on>(cpus[1]), kBound);
  std::thread([&] {
    go_to(cpus[0]);
    for (int i = 0; i < 48; ++i)  // after so many sleeps both look up which CPUs they may use
      ctx.get(actor.call<&Pinned::rest>(), kBound);
    constexpr int kCalls = 100;
    long fewest = kCalls;
    for (int i = 0; i < 200 && fewest > kCalls / 4; ++i) {  // others may use one of the CPUs
      const long before = sleeps();
      for (int k = 0; k < kCalls; ++k) ctx.get(actor.call<&Pinned::same>(k), kBound);
      fewest = std::min(fewest, sleeps() - before);
    }
    EXPECT_LE(fewest, kCalls / 4);
  }).join();
}

/// Each process has a slot in the doorbell of each of its peers, and a doorbell has 4,096 slots.
TEST(Actors, MoreThanADoorbellHasSlotsOneAfterTheOther) {
  if (std::getenv("TROUPE_LONG_TESTS") == nullptr)
    GTEST_SKIP() << "starts 4,200 processes; set TROUPE_LONG_TESTS to run it";
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  for (int i = 0; i < 4'200; ++i) {
    auto counter = ctx.spawn<Counter>();
    ASSERT_EQ(ctx.get(counter.call<&Counter::add>(i), kBound), i);
  }
}

}  // namespace
}  // namespace actors_test
