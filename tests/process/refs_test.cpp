// Tests values that hold refs, few or many, small or large, between real processes and nodes.
#include "examples/support/processes.hpp"
#include "tests/eventually.hpp"

#include <gtest/gtest.h>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace refs_test {
namespace {

using namespace std::chrono_literals;
using troupe::Context;
using troupe::Placement;
using troupe::Ref;

constexpr auto kBound = 20s;

struct Basket {
  std::string label;
  std::vector<Ref<int>> refs;
};
Basket fill(Context& ctx, int n, std::size_t label) {
  Basket basket{std::string(label, 'x'), {}};
  for (int i = 0; i < n; ++i) basket.refs.push_back(ctx.put(i));
  return basket;
}
long sum(Context& ctx, const Basket& basket) {
  long total = static_cast<long>(basket.label.size());
  for (const int value : ctx.get(basket.refs, kBound)) total += value;
  return total;
}
long sum_of(int n, std::size_t label) {
  return static_cast<long>(n) * (n - 1) / 2 + static_cast<long>(label);
}

TEST(Refs, InALargeValueComeAlong) {
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  const auto made = ctx.submit<fill>(10, std::size_t{10'000});
  EXPECT_EQ(sum(ctx, ctx.get(made, kBound)), sum_of(10, 10'000));
  EXPECT_EQ(ctx.get(ctx.submit<sum>(made), kBound), sum_of(10, 10'000));
  const auto put = ctx.put(fill(ctx, 10, 10'000));
  EXPECT_EQ(ctx.get(ctx.submit<sum>(put), kBound), sum_of(10, 10'000));
  EXPECT_EQ(ctx.get(ctx.submit<sum>(fill(ctx, 10, 10'000)), kBound), sum_of(10, 10'000));
}

// --- everything is freed with the last handle, wherever that handle was

using Large = std::vector<double>;
struct Held {
  std::vector<Ref<Large>> refs;
};
Large large() {
  return Large(50'000, 1.5);
}
std::size_t size_of(const Large& values) {
  return values.size();
}
std::size_t size_inside(Context& ctx, const Held& held) {
  return ctx.get(held.refs.at(0), kBound).size();
}
std::size_t die_with(const Held&) {
  ::raise(SIGKILL);
  return 0;
}
std::size_t throw_with(const Held&, const Large&) {
  throw std::runtime_error("as it was told");
}
Held make_held(Context& ctx) {
  return {{ctx.put(large()), ctx.submit<large>()}};
}
struct Keeper {
  Held held;
  void keep(Held more) { held = std::move(more); }
  std::size_t count() const { return held.refs.size(); }
};

struct RefsAreFreed : testing::Test {
  troupe::Session session{{.cpus = 2}};
  Context ctx = session.context();

  std::uint64_t used() { return ctx.cluster().nodes.front().store_used.count; }
  bool all() {
    return eventually([&] { return used() == 0; });
  }
};

TEST_F(RefsAreFreed, AfterACallOfWhichTheyWereArguments) {
  EXPECT_EQ(ctx.get(ctx.submit<size_of>(ctx.put(large())), kBound), 50'000u);
  EXPECT_TRUE(all()) << used();
  EXPECT_EQ(ctx.get(ctx.submit<size_inside>(Held{{ctx.put(large())}}), kBound), 50'000u);
  EXPECT_TRUE(all()) << used();
}

TEST_F(RefsAreFreed, WithTheValueInWhichTheyAre) {
  auto inner = ctx.put(large());
  auto outer = ctx.put(Held{{inner}});
  inner = {};
  EXPECT_EQ(ctx.get(ctx.submit<size_inside>(outer), kBound), 50'000u);
  EXPECT_NE(used(), 0u);
  outer = {};
  EXPECT_TRUE(all()) << used();
}

TEST_F(RefsAreFreed, WhenATaskHasGivenThemAway) {
  auto made = ctx.submit<make_held>();
  Held held = ctx.get(made, kBound);
  EXPECT_EQ(size_inside(ctx, held), 50'000u);
  made = {};
  EXPECT_EQ(ctx.get(held.refs[1], kBound).size(), 50'000u);
  held = {};
  EXPECT_TRUE(all()) << used();
}

TEST_F(RefsAreFreed, WithTheActorThatKeptThem) {
  {
    auto keeper = ctx.spawn<Keeper>();
    keeper.tell<&Keeper::keep>(Held{{ctx.put(large()), ctx.put(large())}});
    EXPECT_EQ(ctx.get(keeper.call<&Keeper::count>(), kBound), 2u);
    EXPECT_NE(used(), 0u);
  }
  EXPECT_TRUE(all()) << used();
}

TEST_F(RefsAreFreed, WhenTheWorkerThatBorrowedThemDies) {
  {
    const Held held{{ctx.put(large())}};
    EXPECT_THROW(ctx.get(ctx.with({.max_retries = 0}).submit<die_with>(held), kBound),
                 troupe::Error);
    EXPECT_EQ(size_inside(ctx, held), 50'000u);
  }
  EXPECT_TRUE(all()) << used();
}

TEST_F(RefsAreFreed, WhenTheActorThatKeptThemIsKilled) {
  auto keeper = ctx.spawn<Keeper>();
  keeper.tell<&Keeper::keep>(Held{{ctx.put(large())}});
  EXPECT_EQ(ctx.get(keeper.call<&Keeper::count>(), kBound), 1u);
  EXPECT_NE(used(), 0u);
  ctx.kill(keeper);
  EXPECT_TRUE(all()) << used();
}

TEST_F(RefsAreFreed, AfterACallThatFailedWithThem) {
  const auto failed = ctx.submit<throw_with>(Held{{ctx.put(large())}}, ctx.put(large()));
  EXPECT_THROW(ctx.get(failed, kBound), troupe::TaskFailed);
  EXPECT_TRUE(all()) << "its error names none of them: " << used();
}

TEST_F(RefsAreFreed, WhenNobodyWaitsForTheCallThatMakesThem) {
  {
    const auto dropped_early = ctx.submit<make_held>();
    const auto of_another = ctx.submit<size_inside>(dropped_early);
  }
  EXPECT_EQ(ctx.get(ctx.submit<size_of>(large()), kBound), 50'000u) << "which has ended now";
  EXPECT_TRUE(all()) << used();
}

TEST_F(RefsAreFreed, WhenTheLastViewOfThemEnds) {
  auto made = ctx.submit<large>();
  auto first = std::make_optional(ctx.view(made, kBound));
  const auto second = std::make_optional(ctx.view(made, kBound));
  made = {};
  first.reset();
  EXPECT_EQ(ctx.get(ctx.submit<size_of>(large()), kBound), 50'000u);
  EXPECT_EQ((*second)->size(), 50'000u);
  EXPECT_EQ((**second)[49'999], 1.5) << "its bytes stay as long as somebody looks at them";
}

struct Link {
  std::vector<Ref<Link>> next;
  Large bytes;
};
int length(Context& ctx, const Link& head) {
  int links = 1;
  for (Link at = head; !at.next.empty(); ++links) at = ctx.get(at.next.front(), kBound);
  return links;
}

TEST_F(RefsAreFreed, OneInTheOtherAThousandDeep) {
  constexpr int kDepth = 1000;
  Link head;
  for (int i = 1; i < kDepth; ++i) head = Link{{ctx.put(head)}, Large(1000, 1)};
  EXPECT_EQ(ctx.get(ctx.submit<length>(head), kBound), kDepth);
  EXPECT_NE(used(), 0u);
  head = {};
  EXPECT_TRUE(all()) << used();
}

// --- objects without a holder

TEST(Refs, AViewMayOutliveItsSession) {
  std::optional<troupe::View<Large>> view;
  {
    troupe::Session session({.cpus = 1});
    Context ctx = session.context();
    {
      const auto made = ctx.submit<large>();
      view.emplace(ctx.view(made, kBound));
    }
    // The node has freed the object when this task has run: the agent learns that when the view
    // ends.
    EXPECT_EQ(ctx.get(ctx.submit<size_of>(Large(10)), kBound), 10u);
  }
  EXPECT_EQ((*view)->size(), 50'000u);
  view.reset();
}

struct Talker {
  std::vector<double> talk() const { return std::vector<double>(131'072, 1.0); }
};

TEST(Refs, WhatATellReturnsTakesNoMemory) {
  troupe::Session session({.cpus = 1, .memory = troupe::Bytes{64 << 20}});
  Context ctx = session.context();
  auto talker = ctx.spawn<Talker>();
  for (int i = 0; i < 100; ++i) talker.tell<&Talker::talk>();  // 1 MiB each
  EXPECT_EQ(ctx.get(talker.call<&Talker::talk>(), kBound).size(), 131'072u);
}

// --- many

TEST(Refs, HalfAMillionGoWithOneCall) {
  if (std::getenv("TROUPE_LONG_TESTS") == nullptr)
    GTEST_SKIP() << "tells the node of a million counts; set TROUPE_LONG_TESTS to run it";
  constexpr int kRefs = 262'144;
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  const auto count =
      ctx.submit<[](const Basket& a, const Basket& b) { return a.refs.size() + b.refs.size(); }>(
          fill(ctx, kRefs, 0), fill(ctx, kRefs, 0));
  EXPECT_EQ(ctx.get(count, 60s), std::size_t{2} * kRefs);
}

TEST(Refs, TenThousandAreOneValue) {
  constexpr int kRefs = 10'000;
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  auto put = ctx.put(fill(ctx, kRefs, 0));
  EXPECT_EQ(sum(ctx, ctx.get(put, kBound)), sum_of(kRefs, 0));
  EXPECT_EQ(ctx.get(ctx.submit<sum>(put), kBound), sum_of(kRefs, 0)) << "a dependency";
  EXPECT_EQ(ctx.get(ctx.submit<sum>(fill(ctx, kRefs, 5)), kBound), sum_of(kRefs, 5))
      << "an argument of its own";
  put = {};
  const auto used = [&] { return ctx.cluster().nodes.front().store_used.count; };
  EXPECT_TRUE(eventually([&] { return used() == 0; })) << "freed with the last handle";
}

TEST(Refs, ThreeThousandComeBackFromATask) {
  constexpr int kRefs = 3'000;
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  const auto made = ctx.submit<fill>(kRefs, std::size_t{0});
  const Basket basket = ctx.get(made, kBound);
  ASSERT_EQ(basket.refs.size(), std::size_t{kRefs});
  EXPECT_EQ(sum(ctx, basket), sum_of(kRefs, 0));
  EXPECT_EQ(ctx.get(ctx.submit<sum>(made), kBound), sum_of(kRefs, 0));
}

TEST(Refs, ManySmallValuesWithRefsGoWithOneCall) {
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  const auto one = ctx.put(fill(ctx, 510, 0));
  const auto two = ctx.submit<fill>(500, std::size_t{3'000});
  const auto sum_of_three =
      ctx.submit<[](Context& c, const Basket& a, const Basket& b, const Basket& d) {
        return sum(c, a) + sum(c, b) + sum(c, d);
      }>(one, two, fill(ctx, 400, 3'000));
  EXPECT_EQ(ctx.get(sum_of_three, kBound),
            sum_of(510, 0) + sum_of(500, 3'000) + sum_of(400, 3'000));
}

TEST(ClusterRefs, TravelInLargeValuesBetweenNodes) {
  troupe::Session session({.cpus = 1, .nodes = 3});
  Context ctx = session.context();
  const auto nodes = ctx.cluster().nodes;
  const auto on = [&](std::size_t node) {
    return ctx.with({.placement = Placement::on(nodes.at(node).id)});
  };
  for (const int n : {10, 2'000}) {
    const auto made = on(1).submit<fill>(n, std::size_t{10'000});
    EXPECT_EQ(ctx.get(on(2).submit<sum>(made), kBound), sum_of(n, 10'000));
    EXPECT_EQ(sum(ctx, ctx.get(made, kBound)), sum_of(n, 10'000));
    EXPECT_EQ(ctx.get(on(1).submit<sum>(ctx.put(fill(ctx, n, 10'000))), kBound), sum_of(n, 10'000));
  }
}

TEST(Refs, AMillionSmallObjectsAreAliveAtOnce) {
  constexpr int kObjects = 1'000'000;
  troupe::Session session({.cpus = 1});
  Context ctx = session.context();
  std::vector<Ref<int>> refs;
  refs.reserve(kObjects);
  for (int i = 0; i < kObjects; ++i) refs.push_back(ctx.put(i));
  long total = 0;
  for (const auto& ref : refs) total += ctx.get(ref, kBound);
  EXPECT_EQ(total, static_cast<long>(kObjects) * (kObjects - 1) / 2);
}

}  // namespace
}  // namespace refs_test
