/// Tests values and refs on a cluster of three nodes: real processes, one agent for each "host",
/// and control.
#include "tests/eventually.hpp"
#include "tests/process/nodes.hpp"
#include "tests/process/tally.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace cluster_objects_test {
namespace {

using namespace std::chrono_literals;
using troupe::Context;
using troupe::NodeId;
using troupe::Placement;
using troupe::Ref;
using Bytes = std::vector<unsigned char>;

struct Basket {
  std::string label;
  std::vector<Ref<Bytes>> refs;
};

constexpr auto kBound = 20s;  // the limit of each wait; a test that reaches it fails
constexpr std::size_t kMiB = std::size_t{1} << 20;

Bytes pattern(std::size_t n, unsigned seed) {
  Bytes bytes(n);
  std::uint32_t x = seed * 2654435761u + 1;
  for (unsigned char& byte : bytes)
    byte = static_cast<unsigned char>((x = x * 1664525u + 1013904223u) >> 24);
  return bytes;
}
Bytes echo(const Bytes& bytes) {
  return bytes;
}
NodeId here(Context& ctx) {
  return ctx.node();
}
/// Holds its CPU until `n` tasks of this kind run at the same time.
NodeId meet(Context& ctx, const std::string& path, int n) {
  Tally tally(path);
  tally.add(1);
  return tally.reaches(n) ? ctx.node() : NodeId{};
}
struct RouteError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
int fails(int x) {
  throw RouteError("no route to " + std::to_string(x));
}

/// Three nodes; `nodes[0]` is the driver's.
class ClusterObjects : public testing::Test {
 protected:
  explicit ClusterObjects(double cpus = 1) : session({.cpus = cpus, .nodes = 3}) {
    if (!eventually([&] { return all_idle(ctx, 3, cpus); }))
      throw std::runtime_error("three nodes did not come up");
    for (const auto& node : ctx.cluster().nodes) {
      nodes.push_back(node.id);
      names[node.id] = node.name;
    }
  }
  auto on(std::size_t node) { return ctx.with({.placement = Placement::on(nodes.at(node))}); }
  std::size_t used(std::size_t node) {
    for (const auto& row : ctx.cluster().nodes)
      if (row.id == nodes.at(node)) return row.store_used.count;
    return 0;
  }
  bool everything_is_freed() {
    return eventually([&] {
      for (std::size_t i = 0; i < nodes.size(); ++i)
        if (used(i) != 0) return false;
      return true;
    });
  }

  troupe::Session session;
  Context ctx = session.context();
  std::vector<NodeId> nodes;
  std::map<NodeId, std::string> names;
};

class ClusterOfTwoCpus : public ClusterObjects {
 protected:
  ClusterOfTwoCpus() : ClusterObjects(2) {}
};

TEST_F(ClusterObjects, TasksThatHoldTheirCpuSpreadOverAllNodes) {
  Scratch scratch;
  std::vector<Ref<NodeId>> refs;
  for (int i = 0; i < 3; ++i) refs.push_back(ctx.submit<meet>(scratch.path, 3));
  std::set<NodeId> seen;
  for (const NodeId node : ctx.get(refs, kBound)) seen.insert(node);
  EXPECT_EQ(seen, std::set<NodeId>(nodes.begin(), nodes.end()));
}

TEST_F(ClusterObjects, APlacedTaskRunsOnTheNamedNode) {
  for (int round = 0; round < 3; ++round)
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(ctx.get(on(i).submit<here>(), kBound), nodes[i]);
  EXPECT_EQ(ctx.node(), nodes[0]);
}

TEST_F(ClusterObjects, ArgumentsAndResultsOfEverySizeArriveByteEqual) {
  for (const std::size_t n :
       {std::size_t{0}, std::size_t{100}, std::size_t{5'000}, std::size_t{300'000}}) {
    const Bytes want = pattern(n, static_cast<unsigned>(n));
    const auto put = ctx.put(want);
    for (std::size_t from = 0; from < 3; ++from)
      for (std::size_t to = 0; to < 3; ++to) {
        const auto made = on(from).submit<pattern>(n, static_cast<unsigned>(n));
        EXPECT_TRUE(ctx.get(on(to).submit<echo>(made), kBound) == want)
            << n << " B, made on node " << from << ", read on node " << to;
        if (from != 0) continue;
        EXPECT_TRUE(ctx.get(on(to).submit<echo>(put), kBound) == want) << n << " B, a put";
        EXPECT_TRUE(ctx.get(on(to).submit<echo>(want), kBound) == want) << n << " B, a value";
      }
  }
}

TEST_F(ClusterObjects, FortyMegabytesGoRound) {
  const std::size_t n = 40 * kMiB;
  const Bytes want = pattern(n, 7);
  const auto put = ctx.put(want);
  auto second = on(1).submit<echo>(put);
  auto third = on(2).submit<echo>(second);
  const auto view = ctx.view(third, kBound);
  ASSERT_EQ(view->size(), n);
  EXPECT_TRUE(std::equal(view->begin(), view->end(), want.begin()));
}

/// Holds a view of the object until the tally reaches `n`.
std::size_t hold_view(Context& ctx, const Basket& basket, const std::string& path, int n) {
  const auto view = ctx.view(basket.refs.front());
  Tally tally(path);
  tally.add(1);
  return tally.reaches(n) ? view->size() : 0;
}

TEST_F(ClusterOfTwoCpus, ALargeObjectIsCopiedOncePerNode) {
  const std::size_t n = 8 * kMiB;
  Scratch scratch;
  Tally tally(scratch.path);
  auto put = ctx.put(pattern(n, 3));
  std::vector<Ref<std::size_t>> refs;
  for (std::size_t i = 0; i < 4; ++i)
    refs.push_back(on(1 + i % 2).submit<hold_view>(Basket{"", {put}}, scratch.path, 5));
  ASSERT_TRUE(tally.reaches(4)) << "two tasks on each of two nodes read it at a time";
  const auto one_copy = [&](std::size_t node) { return used(node) >= n && used(node) < n + kMiB; };
  EXPECT_TRUE(eventually([&] { return one_copy(0) && one_copy(1) && one_copy(2); }))
      << used(0) << ' ' << used(1) << ' ' << used(2);
  tally.add(1);
  for (const std::size_t size : ctx.get(refs, kBound)) EXPECT_EQ(size, n);
  put = {};
  EXPECT_TRUE(everything_is_freed()) << used(0) << ' ' << used(1) << ' ' << used(2);
}

std::size_t sum_of(Context& ctx, const Basket& basket) {
  std::size_t sum = 0;
  for (const auto& ref : basket.refs) sum += ctx.get(ref).size();
  return sum;
}

TEST_F(ClusterObjects, RefsInsideValuesAreGotWhereTheyArrive) {
  Basket basket{"all sizes", {}};
  std::size_t want = 0;
  for (const std::size_t n :
       {std::size_t{0}, std::size_t{100}, std::size_t{5'000}, std::size_t{300'000}})
    for (std::size_t node = 0; node < 3; ++node) {
      basket.refs.push_back(on(node).submit<pattern>(n, 1u));
      want += n;
    }
  for (std::size_t node = 0; node < 3; ++node)
    EXPECT_EQ(ctx.get(on(node).submit<sum_of>(basket), kBound), want);
  const auto stored = ctx.put(basket);
  basket = {};  // the stored value's own refs keep the objects
  for (std::size_t node = 0; node < 3; ++node)
    EXPECT_EQ(ctx.get(on(node).submit<sum_of>(stored), kBound), want);
}

Basket fill(Context& ctx, const std::vector<NodeId>& nodes, std::size_t n) {
  Basket basket{"of " + std::to_string(nodes.size()), {ctx.put(pattern(n, 99))}};
  for (std::size_t i = 0; i < nodes.size(); ++i)
    basket.refs.push_back(ctx.with({.placement = Placement::on(nodes[i])})
                              .submit<pattern>(n, static_cast<unsigned>(i)));
  return basket;
}

TEST_F(ClusterObjects, RefsThatARemoteTaskMadeComeBackInItsResult) {
  for (const std::size_t n : {std::size_t{100}, std::size_t{300'000}})
    for (std::size_t node = 0; node < 3; ++node) {
      const auto filled = on(node).submit<fill>(nodes, n);
      for (std::size_t third = 0; third < 3; ++third)
        EXPECT_EQ(ctx.get(on(third).submit<sum_of>(filled), kBound), 4 * n);
      const Basket basket = ctx.get(filled, kBound);
      EXPECT_EQ(basket.label, "of 3");
      ASSERT_EQ(basket.refs.size(), 4u);
      EXPECT_TRUE(ctx.get(basket.refs[0], kBound) == pattern(n, 99));
      for (unsigned i = 0; i < 3; ++i)
        EXPECT_TRUE(ctx.get(basket.refs[1 + i], kBound) == pattern(n, i));
    }
}

Ref<Bytes> elsewhere(Context& ctx, NodeId node, std::size_t n) {
  return ctx.with({.placement = Placement::on(node)}).submit<pattern>(n, 5u);
}

TEST_F(ClusterObjects, ARefThatARemoteTaskReturnsIsFlattened) {
  for (const std::size_t n : {std::size_t{100}, std::size_t{300'000}})
    for (std::size_t node = 0; node < 3; ++node)
      for (std::size_t far = 0; far < 3; ++far)
        EXPECT_TRUE(ctx.get(on(node).submit<elsewhere>(nodes[far], n), kBound) == pattern(n, 5))
            << n << " B by node " << node << " from " << far;
}

/// Recurses along `way`, one level on each node, and blocks at every level.
std::vector<NodeId> descend(Context& ctx, const std::vector<NodeId>& way, std::size_t at) {
  if (at + 1 == way.size()) return {ctx.node()};
  auto seen =
      ctx.get(ctx.with({.placement = Placement::on(way[at + 1])}).submit<descend>(way, at + 1));
  seen.insert(seen.begin(), ctx.node());
  return seen;
}

TEST_F(ClusterObjects, TasksNestAcrossNodesAndBackOnOneCpuEach) {
  const std::vector<NodeId> way{nodes[1], nodes[2], nodes[0], nodes[2], nodes[1], nodes[1]};
  EXPECT_EQ(ctx.get(on(1).submit<descend>(way, std::size_t{0}), kBound), way);
}

TEST_F(ClusterObjects, WaitSeesRemoteResultsInOrderOfCompletionWithoutTheirBytes) {
  Scratch scratch;
  Tally tally(scratch.path);
  auto slow = on(1).submit<hold_until>(scratch.path, 1);
  const auto quick = on(2).submit<hold_until>(scratch.path, 0);
  auto waited = ctx.wait(std::vector{slow, quick}, {.count = 1, .timeout = kBound});
  ASSERT_EQ(waited.ready.size(), 1u);
  EXPECT_TRUE(waited.ready[0] == quick);
  tally.add(1);
  EXPECT_EQ(ctx.get(slow, kBound), 1);

  const auto large = on(1).submit<pattern>(8 * kMiB, 1u);
  ASSERT_EQ(ctx.wait({large}, {.count = 1, .timeout = kBound}).ready.size(), 1u);
  EXPECT_EQ(used(0), 0u) << "to know that it is ready takes none of its bytes";
  EXPECT_EQ(ctx.view(large, kBound)->size(), 8 * kMiB);
}

TEST_F(ClusterObjects, AsCompletedGivesEveryRemoteResultOnce) {
  std::vector<Ref<Bytes>> refs;
  for (unsigned i = 0; i < 60; ++i)
    refs.push_back(on(i % 3).submit<pattern>(std::size_t{i} * 1'000, i));
  std::set<std::size_t> sizes;
  for (auto& ref : ctx.as_completed(refs)) sizes.insert(ctx.get(ref, kBound).size());
  EXPECT_EQ(sizes.size(), 60u);
}

struct FromWorker {
  int pid = 0;
  Ref<Bytes> large, small;
};
FromWorker put_there(Context& ctx) {
  return {::getpid(), ctx.put(pattern(8 * kMiB, 11)), ctx.put(pattern(100, 12))};
}

TEST_F(ClusterObjects, WhatARemoteWorkerPutOutlivesIt) {
  const FromWorker found = ctx.get(on(1).submit<put_there>(), kBound);
  ASSERT_EQ(::kill(found.pid, SIGKILL), 0);
  ASSERT_TRUE(eventually([&] { return ::kill(found.pid, 0) != 0; }));
  EXPECT_TRUE(ctx.get(on(2).submit<echo>(found.large), kBound) == pattern(8 * kMiB, 11));
  EXPECT_TRUE(ctx.get(found.large, kBound) == pattern(8 * kMiB, 11));
  EXPECT_TRUE(ctx.get(found.small, kBound) == pattern(100, 12));
  EXPECT_EQ(ctx.get(on(1).submit<here>(), kBound), nodes[1]) << "the node has another worker";
}

TEST_F(ClusterObjects, ChurnLeavesNoByteBehind) {
  std::atomic<int> wrong{0};
  const auto churn = [this, &wrong](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<Ref<Bytes>> kept;
    for (unsigned i = 0; i < 500; ++i) {
      const auto node = random() % 3;
      const bool derived = !kept.empty() && random() % 2 == 0;
      kept.push_back(derived ? on(node).submit<echo>(kept[random() % kept.size()])
                             : on(node).submit<pattern>(std::size_t{100'000}, i));
      if (random() % 16 == 0 && ctx.get(kept.back(), kBound).size() != 100'000) ++wrong;
      while (kept.size() > 8) kept.erase(kept.begin() + random() % 8);
    }
  };
  std::thread other(churn, 1);
  churn(2);
  other.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(everything_is_freed()) << used(0) << ' ' << used(1) << ' ' << used(2);
}

/// Reads its arguments and puts an object. With `dies`, the first attempt then kills itself.
Basket mix(Context& ctx, const Basket& basket, bool dies, const std::string& path) {
  Basket mixed{"mixed", {ctx.put(pattern(10'000, 1))}};
  for (const auto& ref : basket.refs)
    if (!ctx.get(ref).empty() && mixed.refs.size() < 3) mixed.refs.push_back(ref);
  if (dies) {
    Tally tally(path);
    tally.add(1);
    if (tally.value() % 2 == 1) ::raise(SIGKILL);
  }
  return mixed;
}

TEST_F(ClusterObjects, DyingWorkersLeaveNoByteBehind) {
  Scratch scratch;
  std::mt19937 random(5);
  {
    std::vector<Ref<Basket>> kept;
    Basket basket{"first", {ctx.put(pattern(300'000, 1)), on(1).submit<pattern>(300'000, 2u)}};
    for (int i = 0; i < 120; ++i) {
      const std::size_t node = random() % 3;
      kept.push_back(on(node).submit<mix>(basket, i % 20 == 7, scratch.path));
      if (i % 10 == 9) basket = ctx.get(kept[random() % kept.size()], kBound);
      while (kept.size() > 12) kept.erase(kept.begin() + random() % 12);
    }
    for (const auto& ref : kept) EXPECT_EQ(ctx.get(ref, kBound).refs.size(), 3u);
  }
  EXPECT_TRUE(everything_is_freed()) << used(0) << ' ' << used(1) << ' ' << used(2);
}

struct Sleeper {
  int sleep(const std::string& path, const Basket&) { return hold_until(path, 1); }
  std::size_t count(const Basket& basket) const { return basket.refs.size(); }
  int pid() const { return ::getpid(); }
};

/// The test makes more calls than the rings on the way hold, so most have not left their sender
/// when the actor dies.
TEST_F(ClusterObjects, CallsThatNeverLeftTheirSenderHoldNothing) {
  Scratch scratch;
  auto actor = on(1).spawn<Sleeper>();
  const int pid = ctx.get(actor.call<&Sleeper::pid>(), kBound);
  Basket basket{std::string(500, 'x'), {ctx.put(pattern(50'000, 1))}};
  std::vector<Ref<std::size_t>> calls;
  const auto asleep = actor.call<&Sleeper::sleep>(scratch.path, basket);
  for (int i = 0; i < 3000; ++i) calls.push_back(actor.call<&Sleeper::count>(basket));
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  for (const auto& call : calls) EXPECT_THROW(ctx.get(call, kBound), troupe::ActorDied);
  basket = {};
  EXPECT_TRUE(everything_is_freed()) << used(0) << ' ' << used(1) << ' ' << used(2);
}

TEST_F(ClusterObjects, ErrorsOfRemoteTasksKeepTypeMessageNodeAndStack) {
  for (std::size_t node = 0; node < 3; ++node) {
    const auto bad = on(node).submit<fails>(7);
    try {
      ctx.get(bad, kBound);
      FAIL() << "no exception";
    } catch (const troupe::TaskFailed& e) {
      EXPECT_TRUE(e.is<RouteError>());
      EXPECT_EQ(e.message(), "no route to 7");
      EXPECT_EQ(e.where().node, names[nodes[node]]);
      EXPECT_NE(e.where().function.find("fails"), std::string::npos) << e.what();
      EXPECT_EQ(e.outcome(), troupe::Outcome::executed);
      EXPECT_NE(e.remote_stack().find("process_test+0x"), std::string::npos) << e.remote_stack();
    }
    EXPECT_THROW(ctx.get(on((node + 1) % 3).submit<fails>(bad), kBound), troupe::TaskFailed)
        << "dependants on other nodes fail with it";
  }
}

TEST_F(ClusterObjects, AKilledRemoteWorkersTaskRunsAgainThere) {
  Scratch scratch;
  const auto dies_twice = [](Context& c, const std::string& path) {
    Tally tally(path);
    tally.add(1);
    if (tally.value() <= 2) ::raise(SIGKILL);
    return c.node();
  };
  EXPECT_EQ(ctx.get(on(2).submit(dies_twice, scratch.path), kBound), nodes[2]);
  const auto dies = [](Context&) { return ::raise(SIGKILL); };
  try {
    ctx.get(ctx.with({.placement = Placement::on(nodes[1]), .max_retries = 0}).submit(dies),
            kBound);
    FAIL() << "no exception";
  } catch (const troupe::WorkerDied& e) {
    EXPECT_EQ(e.outcome(), troupe::Outcome::unknown);
    EXPECT_NE(e.message().find("signal 9"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace cluster_objects_test
