// Tests how actors begin, end and restart on real processes, and what a handle promises
// meanwhile.
#include "tests/eventually.hpp"
#include "tests/process/nodes.hpp"
#include "tests/process/tally.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace actor_lives_test {
namespace {

using namespace std::chrono_literals;
using troupe::Actor;
using troupe::Context;

constexpr auto kBound = 20s;

struct Holder {
  explicit Holder(int x) : value(x) {}
  int value;
  int get() const { return value; }
  int pid() const { return ::getpid(); }
  /// Closes the connection to the node's agent; the process itself goes on.
  int hang_up() const {
    for (int fd = 3; fd < 256; ++fd) ::shutdown(fd, SHUT_RDWR);
    for (;;) ::pause();
  }
};
struct Maker {
  /// Spawns an actor whose constructor argument is the result of a later method of this same
  /// actor.
  int make(troupe::ActorContext& ctx) {
    held = ctx.spawn<Holder>(ctx.self<Maker>().call<&Maker::give>());
    return 1;
  }
  int give() { return 77; }
  Actor<Holder> made() const { return held; }
  void forget() { held = {}; }
  void count() { ++n; }
  int counted() const { return n; }
  int n = 0;
  Actor<Holder> held;
};
int fail() {
  throw std::runtime_error("no argument");
}

void expect_late_arguments_work(Context& ctx) {
  Scratch scratch;
  auto late = ctx.submit<hold_until>(scratch.path, 5);
  const auto begun = std::chrono::steady_clock::now();
  auto holder = ctx.spawn<Holder>(late);
  auto named = ctx.with({.name = "late"}).spawn<Holder>(late);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 10s);
  auto value = holder.call<&Holder::get>();
  EXPECT_THROW(ctx.get(value, 100ms), troupe::TimedOut);
  Tally(scratch.path).add(5);
  EXPECT_EQ(ctx.get(value, kBound), 5);
  EXPECT_EQ(ctx.get(named.call<&Holder::get>(), kBound), 5);
}

TEST(ActorLives, SpawnReturnsBeforeItsArgumentsAreReady) {
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  expect_late_arguments_work(ctx);
}

TEST(ActorLives, AnActorSpawnsWithTheResultOfItsOwnLaterMethod) {
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  auto maker = ctx.spawn<Maker>();
  EXPECT_EQ(ctx.get(maker.call<&Maker::make>(), kBound), 1);
  auto holder = ctx.get(maker.call<&Maker::made>(), kBound);
  EXPECT_EQ(ctx.get(holder.call<&Holder::get>(), kBound), 77);
  maker.tell<&Maker::forget>();
}

TEST(ActorLives, AnArgumentThatFailsIsTheCauseOfTheActorsDeath) {
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  auto holder = ctx.spawn<Holder>(ctx.submit<fail>());
  try {
    ctx.get(holder.call<&Holder::get>(), kBound);
    FAIL() << "it has no argument";
  } catch (const troupe::ActorDied& error) {
    EXPECT_NE(troupe::explain(error).find("no argument"), std::string::npos) << error.what();
  }
}

/// The actor reserves all CPUs while the task that makes its argument needs one.
TEST(ActorLives, AnActorThatWaitsForItsArgumentsLendsItsCpus) {
  troupe::Session session({.cpus = 2});
  Context ctx = session.context();
  Scratch scratch;
  auto late = ctx.submit<hold_until>(scratch.path, 5);
  auto holder = ctx.with(troupe::ActorOptions{.cpus = 2}).spawn<Holder>(late);
  Tally(scratch.path).add(5);
  EXPECT_EQ(ctx.get(holder.call<&Holder::get>(), kBound), 5);
}

void expect_the_next_life_answers(Context& ctx, Actor<Holder> holder) {
  int last = ctx.get(holder.call<&Holder::pid>(), kBound);
  for (int i = 0; i < 10; ++i) {
    ctx.kill(holder, true);
    const int next = ctx.get(holder.call<&Holder::pid>(), kBound);
    ASSERT_NE(next, last) << "kill " << i << ": the life that was killed has answered";
    last = next;
  }
}

TEST(ActorLives, AfterAKillThatMayRestartTheNextLifeAnswers) {
  troupe::Session session({.cpus = 2});
  Context ctx = session.context();
  auto holder = ctx.with({.max_restarts = 100}).spawn<Holder>(3);
  expect_the_next_life_answers(ctx, holder);
  auto fresh = ctx.with({.max_restarts = 1}).spawn<Holder>(4);
  ctx.kill(fresh, true);  // no call precedes this kill
  EXPECT_EQ(ctx.get(fresh.call<&Holder::get>(), kBound), 4);
  ctx.kill(fresh, true);
  EXPECT_THROW(ctx.get(fresh.call<&Holder::get>(), kBound), troupe::ActorDied);
}

/// While an instance lives, the zygotes of sessions that begin hold back their reports of forked
/// workers until the tally allows them.
class HeldReports {
 public:
  explicit HeldReports(const std::string& path) { ::setenv(kVariable, path.c_str(), 1); }
  HeldReports(const HeldReports&) = delete;
  HeldReports& operator=(const HeldReports&) = delete;
  ~HeldReports() { ::unsetenv(kVariable); }
  static void hold() {
    if (const char* path = std::getenv(kVariable)) Tally(path).reaches(1);
  }

 private:
  static constexpr const char* kVariable = "TROUPE_TEST_HOLD_REPORTS";
};
[[maybe_unused]] const int g_after_fork = ::pthread_atfork(nullptr, &HeldReports::hold, nullptr);

/// An actor whose process serves calls although its agent does not yet know the process's id.
struct Unreported {
  Scratch scratch;
  troupe::Session session = start();
  Context ctx = session.context();
  Actor<Holder> holder = ctx.with({.max_restarts = 1}).spawn<Holder>(3);
  int pid = ctx.get(holder.call<&Holder::pid>(), kBound);

  void report() { Tally(scratch.path).add(1); }

 private:
  troupe::Session start() {
    const HeldReports held(scratch.path);
    return troupe::Session({.cpus = 1});
  }
};

TEST(ActorLives, AKillBeforeTheReportOfTheProcessEndsThatLife) {
  Unreported actor;
  actor.ctx.kill(actor.holder, true);
  (void)actor.ctx.cluster();  // the answer shows that the agent has handled the kill
  actor.report();
  EXPECT_NE(actor.ctx.get(actor.holder.call<&Holder::pid>(), kBound), actor.pid);
}

TEST(ActorLives, AProcessThatItsNodeGaveUpBeforeItsReportIsKilledAfterIt) {
  Unreported actor;
  EXPECT_THROW(actor.ctx.get(actor.holder.call<&Holder::hang_up>(), kBound), troupe::ActorDied);
  EXPECT_EQ(::kill(actor.pid, 0), 0) << "it has ended by itself";
  actor.report();
  EXPECT_TRUE(eventually([&] { return ::kill(actor.pid, 0) != 0; }));
  EXPECT_NE(actor.ctx.get(actor.holder.call<&Holder::pid>(), kBound), actor.pid);
}

void expect_names_come_and_go(Context& ctx) {
  const troupe::ActorOptions shared{.name = "shared", .get_if_exists = true};
  std::atomic<int> right{0};
  std::mutex mutex;
  std::vector<std::string> wrong;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 25; ++i) try {
          auto one = ctx.with(shared).spawn<Holder>(4);
          right += ctx.get(one.call<&Holder::get>(), kBound) == 4;
        } catch (const troupe::Error& error) {
          const std::lock_guard lock(mutex);
          wrong.push_back(error.what());
        }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, 200);
  for (const auto& what : wrong) ADD_FAILURE() << what;
  for (int i = 0; i < 50; ++i) {
    auto one = ctx.with({.name = "again"}).spawn<Holder>(i);
    ASSERT_EQ(ctx.get(one.call<&Holder::get>(), kBound), i);
  }
}

TEST(ActorLives, ANameIsALiveActorsOrFree) {
  troupe::Session session({.cpus = 2});
  Context ctx = session.context();
  expect_names_come_and_go(ctx);
}

/// Its destructor ends when the tally at `path` is no longer zero, or after 20 s.
struct Slow {
  explicit Slow(std::string file) : path(std::move(file)) {}
  ~Slow() {
    for (int i = 0; i < 20'000 && Tally(path).value() == 0; ++i) std::this_thread::sleep_for(1ms);
  }
  int get() { return 1; }
  std::string path;
};

TEST(ActorLives, ANameIsKeptUntilTheProcessOfItsActorHasEnded) {
  troupe::Session session({.cpus = 2});
  Context ctx = session.context();
  Scratch scratch;
  auto slow = ctx.with({.name = "slow"}).spawn<Slow>(scratch.path);
  ASSERT_EQ(ctx.get(slow.call<&Slow::get>(), kBound), 1);
  slow = {};
  try {
    auto next = ctx.with({.name = "slow"}).spawn<Holder>(2);
    ADD_FAILURE() << "two have the name";
  } catch (const troupe::Unavailable& error) {
    EXPECT_NE(std::string(error.what()).find("has not ended"), std::string::npos) << error.what();
  }
  EXPECT_FALSE(ctx.find<Slow>("slow"));
  Tally(scratch.path).add(1);
  auto next = ctx.with({.name = "slow"}).spawn<Holder>(2);
  EXPECT_EQ(ctx.get(next.call<&Holder::get>(), kBound), 2);
}

/// A destructor that never ends: the agent kills the process after a bounded time.
struct Endless {
  ~Endless() {
    for (;;) ::pause();
  }
  int pid() { return ::getpid(); }
};

TEST(ActorLives, AnActorThatDoesNotEndIsKilled) {
  troupe::Session session({.cpus = 2});
  Context ctx = session.context();
  auto endless = ctx.spawn<Endless>();
  const int pid = ctx.get(endless.call<&Endless::pid>(), kBound);
  endless = {};
  EXPECT_TRUE(eventually([&] { return ::kill(pid, 0) != 0; }, 30s));
}

struct Tells {
  explicit Tells(Actor<Maker> actor) : to(actor) {}
  ~Tells() {
    for (int i = 0; i < 100; ++i) to.tell<&Maker::count>();
  }
  int get() { return 1; }
  Actor<Maker> to;
};

TEST(ActorLives, WhatADestructorTellsIsDelivered) {
  troupe::Session session({.cpus = 2});
  Context ctx = session.context();
  auto maker = ctx.spawn<Maker>();
  auto tells = ctx.spawn<Tells>(maker);
  ASSERT_EQ(ctx.get(tells.call<&Tells::get>(), kBound), 1);
  tells = {};
  EXPECT_TRUE(eventually([&] { return ctx.get(maker.call<&Maker::counted>(), kBound) == 100; }));
}

using ActorLivesOnNodes = ClusterOfNodes;

TEST_F(ActorLivesOnNodes, LateArgumentsAndNextLivesOnThreeNodes) {
  start(3, {.cpus = 2});
  Context ctx = cluster->context();
  expect_late_arguments_work(ctx);
  auto holder = ctx.with(troupe::ActorOptions{.placement = troupe::Placement::on(others[0]),
                                              .max_restarts = 100})
                    .spawn<Holder>(3);
  expect_the_next_life_answers(ctx, holder);
  expect_names_come_and_go(ctx);
}

}  // namespace
}  // namespace actor_lives_test
