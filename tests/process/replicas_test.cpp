/// Tests replicas of objects that were put. They survive a kill -9 of the node of the put, are
/// then made anew, and are freed with the last ref, whichever node died. Without replicas the
/// object ends in ObjectLost.
#include "examples/support/processes.hpp"
#include "tests/eventually.hpp"
#include "tests/process/nodes.hpp"
#include "tests/process/numbers.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

namespace replicas_test {
namespace {

using namespace std::chrono_literals;
using troupe::Context;
using troupe::Ref;

constexpr auto kBound = 20s;  // the limit of each wait; a test that reaches it fails

struct Basket {
  Ref<Numbers> large, alone;
  Ref<int> small;
  Ref<troupe::Array<int>> array;
  Ref<Ref<Numbers>> outer;
};

Basket fill(Context& ctx, int replicas) {
  auto array = ctx.create<int>(100'000);
  for (std::size_t i = 0; i < array.size(); ++i) array[i] = static_cast<int>(i);
  const Ref<Numbers> large = ctx.put(numbers(1, kMiB), {.replicas = replicas});
  return {large, ctx.put(numbers(2, kMiB)), ctx.put(42, {.replicas = replicas}),
          std::move(array).seal({.replicas = replicas}), ctx.put(large, {.replicas = replicas})};
}

Ref<Numbers> put_safely(Context& ctx) {
  return ctx.put(numbers(3, kMiB), {.replicas = 2});
}

using ClusterReplicas = ClusterOfNodes;

TEST_F(ClusterReplicas, SurviveTheKillOfTheNodeWhereTheyWerePutAndAreFreedWithTheLastRef) {
  start(3);
  Context ctx = cluster->context();
  const int agent = processes::agent_of(ctx, others.at(0));
  {
    const Basket basket = ctx.get(on(0).submit<fill>(2), kBound);
    ASSERT_EQ(::kill(agent, SIGKILL), 0);
    EXPECT_TRUE(ctx.get(basket.large, kBound) == numbers(1, kMiB));
    EXPECT_EQ(ctx.get(basket.small, kBound), 42);
    EXPECT_EQ(ctx.get(on(1).submit<sum>(basket.large), kBound), sum(numbers(1, kMiB)))
        << "a ref that was passed on after its owner's death";
    EXPECT_EQ((*ctx.view(basket.array, kBound))[99'999], 99'999);
    EXPECT_TRUE(ctx.get(ctx.get(basket.outer, kBound), kBound) == numbers(1, kMiB));
    EXPECT_THROW(ctx.get(basket.alone, kBound), troupe::ObjectLost) << "it had no replica";
  }
  EXPECT_TRUE(eventually([&] { return bytes() == 0; }, 25s)) << bytes() << " bytes are left";
}

TEST_F(ClusterReplicas, AreMadeAnewWhenAKeeperDiesAndWhenTheOwnerDoes) {
  start(4);
  Context ctx = cluster->context();
  using Nodes = std::vector<troupe::NodeId>;
  std::vector<Ref<Numbers>> refs{on(0).submit<put_safely>(), put_safely(ctx)};
  ctx.wait(refs, {.count = 2, .timeout = kBound});
  const auto where = [&](std::size_t ref) { return ctx.locations(refs).at(ref).nodes; };
  const auto has = [](const Nodes& nodes, troupe::NodeId node) {
    return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
  };
  const auto kill = [&](troupe::NodeId node) {
    ASSERT_EQ(::kill(processes::agent_of(ctx, node), SIGKILL), 0);
  };
  const auto are_two = [&](std::size_t ref, troupe::NodeId without) {
    const auto are = [&] { return where(ref).size() == 2 && !has(where(ref), without); };
    EXPECT_TRUE(eventually(are, kBound)) << where(ref).size() << " of " << ref;
  };
  ASSERT_TRUE(has(where(0), others.at(0)));
  kill(others.at(0));
  are_two(0, others.at(0));  // the owner of this object was lost
  are_two(1, others.at(0));
  const Nodes left = where(0);
  const troupe::NodeId next = left.front() == ctx.node() ? left.back() : left.front();
  kill(next);
  are_two(1, next);  // this node owns the object
  EXPECT_TRUE(ctx.get(refs[0], kBound) == numbers(3, kMiB)) << "from the copy of a copy, or that";
}

TEST_F(ClusterReplicas, AreFreedWithTheLastRefWhenNobodyDies) {
  start(3);
  Context ctx = cluster->context();
  {
    const Basket basket = ctx.get(on(0).submit<fill>(3), kBound);
    EXPECT_TRUE(ctx.get(basket.large, kBound) == numbers(1, kMiB));
    EXPECT_TRUE(eventually([&] { return bytes() > 3 * (kMiB + 400'000); })) << bytes();
  }
  EXPECT_TRUE(eventually([&] { return bytes() == 0; }, 10s)) << bytes() << " bytes are left";
}

TEST_F(ClusterReplicas, MoreThanThereAreNodesAndFewerThanOneAreErrors) {
  start(2);
  Context ctx = cluster->context();
  EXPECT_THROW(ctx.put(1, {.replicas = 3}), troupe::Infeasible);
  EXPECT_THROW(ctx.put(1, {.replicas = 0}), troupe::InvalidArgument);
  EXPECT_EQ(ctx.get(ctx.put(1, {.replicas = 2}), kBound), 1);
  EXPECT_TRUE(eventually([&] { return bytes() == 0; }, 10s)) << bytes() << " bytes are left";
}

}  // namespace
}  // namespace replicas_test
