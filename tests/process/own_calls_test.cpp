// Tests an actor that calls itself, through ctx.self() or through a handle that it was given.
#include "tests/process/nodes.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <string>
#include <utility>
#include <vector>

namespace own_calls_test {
namespace {

using namespace std::chrono_literals;
using troupe::Actor;
using troupe::ActorContext;
using troupe::Context;
using troupe::Ref;

constexpr auto kBound = 20s;

struct Walker {
  Walker() = default;
  explicit Walker(int steps) : total(steps) {}
  std::vector<std::string> seen;
  std::vector<double> large;
  Actor<Walker> me;
  int total = 0;

  void know(Actor<Walker> handle) { me = handle; }
  void forget() { me = {}; }
  void note(const std::string& what) { seen.push_back(what); }
  std::vector<std::string> all() const { return seen; }
  int value() const { return total; }
  int add(int k) { return total += k; }
  void fail() { throw std::runtime_error("on purpose"); }
  void keep(std::vector<double> v) { large = std::move(v); }
  double sum() const {
    double s = 0;
    for (const double x : large) s += x;
    return s;
  }
  // Tells itself to walk on until `left` is 0.
  void walk(ActorContext& ctx, int left) {
    ++total;
    if (left > 0) ctx.self<Walker>().tell<&Walker::walk>(left - 1);
  }
  void begin_by_handle(int k) {
    seen.push_back("begin");
    me.tell<&Walker::note>("told");
    me.tell<&Walker::add>(k);
    seen.push_back("end");
  }
  troupe::Task<int> ask_itself(ActorContext& ctx, int k) {
    auto more = ctx.self<Walker>().call<&Walker::add>(k);
    const int sum = co_await more;
    co_return sum + 1000;
  }
  troupe::Task<int> ask_by_handle(int k) {
    auto more = me.call<&Walker::add>(k);
    const int sum = co_await more;
    co_return sum;
  }
  troupe::Task<std::string> hear_failure() {
    auto bad = me.call<&Walker::fail>();
    try {
      co_await bad;
    } catch (const troupe::TaskFailed& error) {
      co_return error.message();
    }
    co_return "";
  }
  Ref<int> leave_it_to_the_caller(ActorContext& ctx, int k) {
    return ctx.self<Walker>().call<&Walker::add>(k);
  }
  // Sends a large argument, and a ref of a large object, from the actor to itself.
  troupe::Task<double> send_itself_much(ActorContext& ctx) {
    auto put = ctx.put(std::vector<double>(100'000, 2.0));
    auto kept = ctx.self<Walker>().call<&Walker::keep>(put);
    co_await kept;
    auto direct = ctx.self<Walker>().call<&Walker::large_copy>(std::vector<double>(50'000, 1.0));
    const std::vector<double> back = co_await direct;
    auto total_of = ctx.self<Walker>().call<&Walker::sum>();
    co_return co_await total_of + static_cast<double>(back.size());
  }
  std::vector<double> large_copy(std::vector<double> v) { return v; }
  int wait_in_vain() {
    const auto r = me.call<&Walker::add>(1);
    return Context(troupe::detail::running_engine()).get(r);
  }
  std::size_t wait_for_one_of_two(Ref<int> other) {
    std::vector<Ref<int>> both{me.call<&Walker::add>(1), other};
    return Context(troupe::detail::running_engine())
        .wait(std::move(both), {.count = 1})
        .ready.size();
  }
  std::size_t wait_for_two(Ref<int> other) {
    std::vector<Ref<int>> both{me.call<&Walker::add>(1), other};
    return Context(troupe::detail::running_engine())
        .wait(std::move(both), {.count = 2})
        .ready.size();
  }
};
/// Calls itself from its constructor, after it has found itself by its name.
struct Eager {
  int n = 0;
  explicit Eager(int k) {
    Context(troupe::detail::running_engine()).find<Eager>("eager")->tell<&Eager::add>(k);
  }
  int add(int k) { return n += k; }
  int value() const { return n; }
};
int seven() {
  return 7;
}

/// The methods of an actor begin in the order in which they were told.
void expect_own_calls_work(Context& ctx, Actor<Walker> walker) {
  walker.tell<&Walker::know>(walker);
  ctx.get(walker.call<&Walker::begin_by_handle>(5), kBound);
  // The actor had told itself `add` and `note` before this call was made.
  ASSERT_EQ(ctx.get(walker.call<&Walker::all>(), kBound),
            (std::vector<std::string>{"begin", "end", "told"}));
  EXPECT_EQ(ctx.get(walker.call<&Walker::value>(), kBound), 5);
  EXPECT_EQ(ctx.get(walker.call<&Walker::ask_itself>(10), kBound), 1015);
  EXPECT_EQ(ctx.get(walker.call<&Walker::ask_by_handle>(1), kBound), 16);
  EXPECT_EQ(ctx.get(walker.call<&Walker::leave_it_to_the_caller>(4), kBound), 20);
  EXPECT_EQ(ctx.get(walker.call<&Walker::hear_failure>(), kBound), "on purpose");
  EXPECT_EQ(ctx.get(walker.call<&Walker::send_itself_much>(), kBound), 200'000.0 + 50'000.0);
  walker.tell<&Walker::walk>(1'000);
  ASSERT_TRUE(
      eventually([&] { return ctx.get(walker.call<&Walker::value>(), kBound) == 1'021; }, 20s));
  walker.tell<&Walker::forget>();
}

TEST(OwnCalls, AnActorCallsAndTellsItselfOnOneNode) {
  troupe::Session session({.cpus = 2});
  Context ctx = session.context();
  expect_own_calls_work(ctx, ctx.spawn<Walker>());
}

TEST(OwnCalls, AConstructorTellsItsOwnActor) {
  troupe::Session session({.cpus = 2});
  Context ctx = session.context();
  auto eager = ctx.with({.name = "eager"}).spawn<Eager>(7);
  EXPECT_TRUE(eventually([&] { return ctx.get(eager.call<&Eager::value>(), kBound) == 7; }, 20s));
}

TEST(OwnCalls, AMethodThatBlocksForItsOwnActorIsRefusedAndTheActorLivesOn) {
  troupe::Session session({.cpus = 2});
  Context ctx = session.context();
  auto walker = ctx.spawn<Walker>();
  walker.tell<&Walker::know>(walker);
  try {
    ctx.get(walker.call<&Walker::wait_in_vain>(), kBound);
    FAIL() << "it has waited for itself";
  } catch (const troupe::Error& error) {
    EXPECT_NE(std::string(troupe::explain(error)).find("co_await"), std::string::npos)
        << troupe::explain(error);
  }
  auto other = ctx.submit<seven>();
  EXPECT_THROW(ctx.get(walker.call<&Walker::wait_for_two>(other), kBound), troupe::Error);
  EXPECT_EQ(ctx.get(walker.call<&Walker::wait_for_one_of_two>(other), kBound), 1u);
  EXPECT_TRUE(eventually([&] { return ctx.get(walker.call<&Walker::value>(), kBound) == 3; }, 20s))
      << "calls that were not awaited run all the same";
  walker.tell<&Walker::forget>();
}

/// The last outside handle goes while the actor still calls itself.
TEST(OwnCalls, WhatItHasToldItselfRunsBeforeItEnds) {
  troupe::Session session({.cpus = 2});
  Context ctx = session.context();
  auto log = ctx.spawn<Walker>();
  struct Relay {
    void pass(ActorContext& ctx, Actor<Walker> to, int left) {
      if (left == 0)
        to.tell<&Walker::note>("done");
      else
        ctx.self<Relay>().tell<&Relay::pass>(to, left - 1);
    }
  };
  auto relay = ctx.spawn<Relay>();
  relay.tell<&Relay::pass>(log, 200);
  relay = {};
  EXPECT_TRUE(eventually(
      [&] { return ctx.get(log.call<&Walker::all>(), kBound) == std::vector<std::string>{"done"}; },
      20s));
}

using OwnCallsOnNodes = ClusterOfNodes;

TEST_F(OwnCallsOnNodes, AnActorCallsAndTellsItselfOnThreeNodes) {
  start(3, {.cpus = 2});
  Context ctx = cluster->context();
  for (std::size_t node = 0; node < 2; ++node) expect_own_calls_work(ctx, on(node).spawn<Walker>());
  expect_own_calls_work(ctx, ctx.spawn<Walker>());
}

}  // namespace
}  // namespace own_calls_test
