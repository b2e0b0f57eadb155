// Tests which nodes count as slow: by the times of their tasks against the median, and by their
// heartbeats. Also tests when slow nodes are tried again, and that chance makes no node slow.
#include "troupe/runtime/control/slow_nodes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

namespace troupe::control::slow_nodes_test {
namespace {

using namespace std::chrono_literals;

constexpr wire::FunctionKey kSort{1, 10}, kScan{1, 20};

NodeId node(std::uint64_t n) {
  return NodeId{9, n};
}

struct World {
  SlowNodes slow;
  Time now = Time{} + 100s;
  std::vector<SlowNodes::Change> changes;
  std::set<NodeId> avoided;

  void ran(std::uint64_t n, Duration each, std::uint32_t tasks = 10,
           wire::FunctionKey function = kSort) {
    const auto ns = static_cast<std::uint64_t>(each.count()) * tasks;
    const wire::SitePace site{function, tasks, ns};
    slow.on_pace(node(n), {&site, 1}, now);
  }
  /// Lets half a second pass, and collects the changes.
  void look() {
    now += 500ms;
    for (auto& change : slow.on_tick(now)) {
      change.avoided ? (void)avoided.insert(change.node) : (void)avoided.erase(change.node);
      changes.push_back(std::move(change));
    }
  }
  /// Runs tasks on four nodes. The last node takes `last` for each, the others `others`. Avoided
  /// nodes get no tasks.
  void work(Duration last, int looks, Duration others = 10ms) {
    for (int i = 0; i < looks; ++i) {
      for (std::uint64_t n = 1; n <= 4; ++n)
        if (avoided.count(node(n)) == 0) ran(n, n == 4 ? last : others);
      look();
    }
  }
};

TEST(SlowNodes, ANodeThatTakesThreeTimesTheMedianIsAvoidedAndSaidOnce) {
  World world;
  world.work(29ms, 20);
  EXPECT_TRUE(world.changes.empty());
  World slow;
  slow.work(31ms, 3);
  EXPECT_TRUE(slow.changes.empty()) << "three reports say nothing";
  slow.work(31ms, 1);
  ASSERT_EQ(slow.changes.size(), 1u);
  EXPECT_EQ(slow.changes[0].node, node(4));
  EXPECT_TRUE(slow.changes[0].avoided);
  EXPECT_TRUE(slow.changes[0].said);
  EXPECT_EQ(slow.changes[0].why, "its tasks take 3.1 times as long as the median of 4 nodes");
  slow.work(31ms, 15);
  EXPECT_EQ(slow.changes.size(), 1u);
}

TEST(SlowNodes, OneThatWasFastIsFoundWithinTenSeconds) {
  World world;
  world.work(10ms, 40);
  int looks = 0;
  for (; world.avoided.empty() && looks < 40; ++looks) world.work(200ms, 1);
  EXPECT_LE(looks, 20);
}

TEST(SlowNodes, ItIsTriedAfterTenSecondsAndLaterEachTimeItIsSlowAgain) {
  World world;
  world.work(100ms, 4);
  ASSERT_EQ(world.avoided.count(node(4)), 1u);
  std::vector<Duration> waits;
  for (int trial = 0; trial < 6; ++trial) {
    const Time since = world.now;
    for (int i = 0; i < 400 && world.avoided.count(node(4)) != 0; ++i) world.work(100ms, 1);
    waits.push_back(world.now - since);
    for (int i = 0; i < 10 && world.avoided.count(node(4)) == 0; ++i) world.work(100ms, 1);
    ASSERT_EQ(world.avoided.count(node(4)), 1u) << trial;
  }
  EXPECT_EQ(waits, (std::vector<Duration>{10s, 20s, 40s, 80s, 160s, 160s}));
  std::size_t said = 0;
  for (const auto& change : world.changes) said += change.said ? 1u : 0u;
  EXPECT_EQ(said, 1u) << "that it is slow, and not each time it is tried";
  for (int i = 0; i < 400 && world.avoided.count(node(4)) != 0; ++i) world.work(10ms, 1);
  EXPECT_FALSE(world.changes.back().why.empty()) << "it is tried, and not proven";
  world.work(10ms, 4);
  EXPECT_TRUE(world.changes.back().said);
  EXPECT_TRUE(world.changes.back().why.empty()) << "it is as fast as others";
}

TEST(SlowNodes, TasksThatMustRunThereSayThatItIsFastAgain) {
  World world;
  world.work(100ms, 4);
  ASSERT_EQ(world.avoided.count(node(4)), 1u);
  world.avoided.clear();  // the tasks run there all the same
  world.work(12ms, 4);
  ASSERT_EQ(world.changes.size(), 2u);
  EXPECT_FALSE(world.changes[1].avoided);
  EXPECT_TRUE(world.changes[1].said);
}

TEST(SlowNodes, FewerThanThreeNodesSmallDifferencesAndOneLongTaskSayNothing) {
  World two;
  for (int i = 0; i < 20; ++i) {
    two.ran(1, 1ms);
    two.ran(2, 100ms);
    two.look();
  }
  EXPECT_TRUE(two.changes.empty());
  World tiny;
  tiny.work(1900us, 20, 10us);
  EXPECT_TRUE(tiny.changes.empty());
  World shortest;
  shortest.work(70ms, 20, 10us);
  EXPECT_TRUE(shortest.changes.empty());
  World outlier;
  for (int i = 0; i < 40; ++i) outlier.work(i % 5 == 4 ? 10s : 10ms, 1);
  EXPECT_TRUE(outlier.changes.empty());
}

TEST(SlowNodes, HalfOfTheNodesAreNotCalledSlow) {
  World world;
  for (int i = 0; i < 20; ++i) {
    for (std::uint64_t n = 1; n <= 4; ++n) world.ran(n, n <= 2 ? 10ms : 100ms);
    world.look();
  }
  EXPECT_TRUE(world.changes.empty());
}

TEST(SlowNodes, NobodyIsWokenForNothing) {
  World world;
  EXPECT_EQ(world.slow.next_tick(), Time::max());
  world.ran(1, 1ms);
  EXPECT_LE(world.slow.next_tick(), world.now);
  world.look();
  EXPECT_EQ(world.slow.next_tick(), Time::max());
  world.work(100ms, 4);
  ASSERT_EQ(world.avoided.size(), 1u);
  EXPECT_EQ(world.slow.next_tick(), world.now + 500ms) << "it will be tried";
}

TEST(SlowNodes, FunctionsAreComparedWithThemselvesAndMostOfThemDecide) {
  World world;
  const auto both = [&](Duration sort_of_last, Duration scan_of_last) {
    for (int i = 0; i < 10; ++i) {
      for (std::uint64_t n = 1; n <= 4; ++n) {
        world.ran(n, n == 4 ? sort_of_last : 10ms);
        world.ran(n, n == 4 ? scan_of_last : 1s, 1, kScan);
      }
      world.look();
    }
  };
  both(200ms, 1s);  // one of the two functions may read a file that lies on another node
  EXPECT_TRUE(world.changes.empty());
  both(200ms, 20s);
  ASSERT_EQ(world.changes.size(), 1u);
  EXPECT_EQ(world.changes[0].node, node(4));
}

TEST(SlowNodes, HeartbeatsThatComeLateAgainAndAgainMakeANodeSlowUntilTheyDoNot) {
  World world;
  std::map<std::uint64_t, Time> next;
  const auto beat = [&](Duration period_of_last, Duration of_others, int looks) {
    for (int i = 0; i < looks; ++i) {
      for (std::uint64_t n = 1; n <= 4; ++n)
        if (next[n] <= world.now) {
          world.slow.on_heartbeat(node(n), world.now);
          next[n] = world.now + (n == 4 ? period_of_last : of_others);
        }
      world.look();
    }
  };
  beat(1s, 1s, 20);
  EXPECT_TRUE(world.changes.empty());
  beat(2s, 2s, 40);  // control or the network itself is late
  EXPECT_TRUE(world.changes.empty());
  beat(2s, 1s, 40);
  ASSERT_EQ(world.changes.size(), 1u);
  EXPECT_EQ(world.changes[0].why, "its heartbeats come 1000 ms late");
  EXPECT_TRUE(world.changes[0].avoided);
  beat(1s, 1s, 20);
  ASSERT_EQ(world.changes.size(), 2u);
  EXPECT_FALSE(world.changes[1].avoided);
  EXPECT_TRUE(world.changes[1].said);
}

TEST(SlowNodes, ADeadNodeIsForgottenAndMemoryIsBounded) {
  World world;
  world.work(100ms, 4);
  world.slow.forget(node(4));
  world.changes.clear();
  world.work(100ms, 40);
  for (const auto& change : world.changes) EXPECT_NE(change.node, node(4)) << "it gets nothing";
  World many;
  for (std::uint64_t f = 0; f < 10'000; ++f) many.ran(1, 1ms, 1, {1, f});
  for (std::uint64_t n = 2; n <= 4; ++n)
    for (int i = 0; i < 4; ++i) many.ran(n, 1ms, 1, {1, 9'999});
  many.look();
  EXPECT_TRUE(many.changes.empty());
}

// Simulates seeded clusters. The tasks' times depend on the function and on chance, some reports
// are lost, and some nodes are throttled for a while. Throttled nodes are found within ten
// seconds and come back, and no other node is ever avoided.
TEST(SlowNodes, SimulatedClustersAvoidThrottledNodesAndNobodyElse) {
  std::uint64_t found = 0, tried = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto chance = [&] { return std::generate_canonical<double, 53>(random); };
    const std::uint64_t nodes = 3 + random() % 10, functions = 1 + random() % 4;
    std::vector<double> mean_ms;
    for (std::uint64_t f = 0; f < functions; ++f) mean_ms.push_back(std::exp(chance() * 9 - 2));
    World world;
    const std::uint64_t victim = 1 + random() % nodes;
    const double factor = 5 + 30 * chance();
    const int from = 10 + static_cast<int>(random() % 40), until = from + 120;
    int found_after = -1, end_of_avoiding = -1;
    const bool visible = *std::max_element(mean_ms.begin(), mean_ms.end()) >= 1;
    for (int half = 0; half < until + 500; ++half) {
      const bool throttled = half >= from && half < until;
      for (std::uint64_t n = 1; n <= nodes; ++n) {
        if (world.avoided.count(node(n)) != 0 || chance() < 0.1) continue;
        for (std::uint64_t f = 0; f < functions; ++f) {
          const double ms = mean_ms[f] * (n == victim && throttled ? factor : 1);
          const auto tasks = static_cast<std::uint32_t>(std::clamp(2000 / ms, 1.0, 1e6));
          const double spread = tasks < 30 ? 0.8 + 0.5 * chance() : 0.95 + 0.1 * chance();
          const bool outlier = chance() < 0.01;
          world.ran(n, Duration(static_cast<std::int64_t>(ms * spread * (outlier ? 20 : 1) * 1e6)),
                    tasks, {2, f});
        }
      }
      world.look();
      for (const NodeId one : world.avoided) ASSERT_EQ(one, node(victim)) << "at " << half;
      const bool is_avoided = world.avoided.count(node(victim)) != 0;
      ASSERT_FALSE(is_avoided && half < from) << "at " << half;
      if (is_avoided && found_after < 0) found_after = half - from;
      if (is_avoided) end_of_avoiding = half;
    }
    tried += world.changes.size() > 2 ? 1 : 0;
    if (functions == 1 && visible) {
      ASSERT_GE(found_after, 0);
      ASSERT_LE(found_after, 20) << "in halves of a second";
      ++found;
    }
    ASSERT_TRUE(world.avoided.empty()) << "it is fast again, and avoided";
    ASSERT_LT(end_of_avoiding, until + 330);
  }
  EXPECT_GE(found, 8u);
  EXPECT_GE(tried, 8u);
}

}  // namespace
}  // namespace troupe::control::slow_nodes_test
