// Tests an agent that is stopped, and so sends nothing. Its actors must know by themselves when
// another life of theirs may begin elsewhere.
#include "tests/eventually.hpp"
#include "tests/process/nodes.hpp"
#include "tests/process/processes.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <cstdio>

namespace stopped_agent_test {
namespace {

using namespace std::chrono_literals;
using troupe::Actor;
using troupe::ActorOptions;
using troupe::Context;
using troupe::Placement;
using troupe::Ref;
using Clock = std::chrono::steady_clock;

constexpr auto kBound = 20s;

struct Counter {
  int n = 0;
  int add(int k) { return n += k; }
  int pid() const { return ::getpid(); }
};

double ms_since(Clock::time_point begun) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begun).count();
}

Actor<Counter> counter_on(const Context& ctx, troupe::NodeId node) {
  return ctx.with(ActorOptions{.placement = Placement::on(node, true), .max_restarts = -1})
      .spawn<Counter>();
}

TEST(ClusterStoppedAgent, ItsActorsStandStillBeforeTheyMayLiveElsewhereInWhateverOrderTheyWake) {
  if (std::getenv("TROUPE_LONG_TESTS") == nullptr)
    GTEST_SKIP() << "takes 12 s; set TROUPE_LONG_TESTS to run it";
  troupe::Session session({.cpus = 3, .memory = {}, .nodes = 3, .address = ""});
  Context ctx = session.context();
  ASSERT_EQ(other_nodes(ctx, 3).size(), 2u);
  auto runs = counter_on(ctx, ctx.node()), sleeps = counter_on(ctx, ctx.node());
  const int running = ctx.get(runs.call<&Counter::pid>(), kBound);
  const int stopped = ctx.get(sleeps.call<&Counter::pid>(), kBound);
  const int agent = look_at(look_at(running).parent).parent;
  ASSERT_EQ(look_at(agent).name, "troupe-agent");
  EXPECT_EQ(ctx.get(sleeps.call<&Counter::add>(1), kBound), 1);

  hit(stopped, SIGSTOP);
  const Ref<int> waits = sleeps.call<&Counter::add>(1);
  const auto begun = Clock::now();
  hit(agent, SIGSTOP);
  double last = 0;  // when a call within the node was last answered, in ms
  bool woken = false;
  while (ms_since(begun) < 12'000) {
    if (ctx.try_get(runs.call<&Counter::add>(1), 50ms)) last = ms_since(begun);
    if (!woken && ms_since(begun) > 9'000) {
      hit(stopped, SIGCONT);
      woken = true;
    }
  }
  EXPECT_FALSE(ctx.try_get(waits, 0ms)) << "who wakes before its agent must not answer";
  std::printf("agent stopped: the last call was answered after %.0f ms\n", last);
  EXPECT_GE(last, 6'000) << "until then it was served";
  EXPECT_LE(last, 8'900) << "from 8 s on its actors may live elsewhere";
  hit(agent, SIGCONT);
  EXPECT_TRUE(eventually([&] { return !is_alive(agent) && !is_alive(running); }, 8s));
  EXPECT_THROW(ctx.get(waits, kBound), troupe::Error) << "its node has ended, and with it the wait";
}

// No other node has a vote, so no actor is started elsewhere: callers wait, and no call fails.
TEST(ClusterStoppedAgent, OnTheOnlyNodeCallsWaitFromEightSecondsOnAndGoOnWhenItRuns) {
  if (std::getenv("TROUPE_LONG_TESTS") == nullptr)
    GTEST_SKIP() << "takes 11 s; set TROUPE_LONG_TESTS to run it";
  troupe::Session session({.cpus = 2, .memory = {}, .nodes = 2, .address = ""});
  Context ctx = session.context();
  ASSERT_EQ(other_nodes(ctx, 2).size(), 1u);
  auto counter = counter_on(ctx, ctx.node());
  auto elsewhere = counter_on(ctx, other_nodes(ctx, 2).front());
  const auto agent_of = [&](const Actor<Counter>& actor) {
    const auto pid = ctx.try_get(actor.call<&Counter::pid>(), kBound);
    return pid ? look_at(look_at(*pid).parent).parent : 0;
  };
  const int agent = agent_of(counter);
  hit(agent_of(elsewhere), SIGKILL);
  // Control says that no other node has a vote before it starts the other actor here.
  ASSERT_TRUE(eventually([&] { return agent_of(elsewhere) == agent; }, kBound));

  std::vector<Ref<int>> calls;
  const auto begun = Clock::now();
  hit(agent, SIGSTOP);
  double last = 0;
  while (ms_since(begun) < 10'000) {
    calls.push_back(counter.call<&Counter::add>(1));
    if (ctx.try_get(calls.back(), 50ms)) last = ms_since(begun);
  }
  hit(agent, SIGCONT);
  std::printf("agent stopped: the last call was answered after %.0f ms\n", last);
  EXPECT_GE(last, 6'000);
  EXPECT_LE(last, 8'900);
  for (std::size_t i = 0; i < calls.size(); ++i)
    EXPECT_EQ(ctx.get(calls[i], kBound), static_cast<int>(i + 1));
  EXPECT_TRUE(is_alive(agent));
}

}  // namespace
}  // namespace stopped_agent_test
