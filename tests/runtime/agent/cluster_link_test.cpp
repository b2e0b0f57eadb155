// Tests ClusterLink: CLUSTER-1 to CLUSTER-3. The lease table shows what it knows of other nodes by
// where it sends a request that does not fit this one.
#include "troupe/runtime/agent/cluster_link.hpp"

#include <gtest/gtest.h>

#include <map>
#include <variant>

namespace troupe::agent::cluster_link_test {
namespace {

using namespace std::chrono_literals;

NodeId node_id(std::uint64_t n) {
  return NodeId{0, n};
}

scheduling::LeaseOptions no_cpus() {
  scheduling::LeaseOptions options;
  options.infeasible_timeout = 60s;
  return options;
}

struct ClusterLinkTest : testing::Test {
  control::ClusterRow& add(std::uint64_t n) {
    control::ClusterRow& row = nodes.rows.emplace_back();
    row.description.id = node_id(n);
    row.description.resources.cpus = scheduling::amount_of(4);
    row.report.view.free = row.description.resources;
    return row;
  }
  void tell() { link.on_nodes(nodes, now); }
  /// Returns the node that a request for one CPU goes to; zero: none.
  NodeId chosen() {
    const LeaseKey key = LeaseKey::of(++last_key);
    scheduling::ResourceDemand demand;
    demand.need.cpus = scheduling::amount_of(1);
    leases.request(ProcessIndex{1}, key, demand, 1, now);
    NodeId node;
    for (const auto& event : leases.take_events())
      if (const auto* spilled = std::get_if<scheduling::Spilled>(&event)) node = spilled->node;
    leases.request(ProcessIndex{1}, key, demand, 0, now);
    leases.take_events();
    return node;
  }

  scheduling::LeaseTable leases{no_cpus(), node_id(5)};
  ClusterLink link{node_id(5), leases};
  control::ClusterNodes nodes;
  Time now{1s};
  std::uint64_t last_key = 0;
};

TEST_F(ClusterLinkTest, LeaseTableSeesTheNodesOfTheRosterUntilTheyAreGone) {
  EXPECT_EQ(chosen(), NodeId{});
  add(5);
  tell();
  EXPECT_TRUE(link.others().empty());
  add(7);
  tell();
  EXPECT_TRUE(link.knows(node_id(7)));
  EXPECT_EQ(chosen(), node_id(7));
  nodes.rows.pop_back();
  tell();
  EXPECT_FALSE(link.knows(node_id(7)));
  EXPECT_EQ(chosen(), NodeId{});
  add(8);
  tell();
  EXPECT_EQ(chosen(), node_id(8));
  link.node_dead(node_id(8), now);
  EXPECT_FALSE(link.knows(node_id(8)));
  EXPECT_EQ(chosen(), NodeId{});
}

TEST_F(ClusterLinkTest, NodeAcceptsNothingWhileItIsSuspectDrainingOrOutOfReach) {
  add(7).suspect = true;
  tell();
  EXPECT_EQ(chosen(), NodeId{});
  nodes.rows[0].suspect = false;
  nodes.rows[0].draining = true;
  tell();
  EXPECT_EQ(chosen(), NodeId{});
  nodes.rows[0].draining = false;
  tell();
  EXPECT_EQ(chosen(), node_id(7));
  link.out_of_reach({node_id(7)}, now);
  EXPECT_EQ(chosen(), NodeId{});
  tell();
  EXPECT_EQ(chosen(), NodeId{}) << "a new roster does not bring it back";
  link.out_of_reach({}, now);
  EXPECT_EQ(chosen(), node_id(7));
}

TEST_F(ClusterLinkTest, EachNodeIsWatchedByThreeOthers) {
  for (std::uint64_t n = 1; n <= 9; ++n) add(n);
  std::map<NodeId, int> watchers;
  for (std::uint64_t n = 1; n <= 9; ++n) {
    scheduling::LeaseTable its_leases(no_cpus(), node_id(n));
    ClusterLink its(node_id(n), its_leases);
    its.on_nodes(nodes, now);
    for (const NodeId node : its.watched()) ++watchers[node];
  }
  EXPECT_EQ(watchers.size(), 9u);
  for (const auto& [node, count] : watchers) EXPECT_EQ(count, 3);
}

TEST_F(ClusterLinkTest, ReachIsLookedAtOnceASecond) {
  EXPECT_TRUE(link.is_touch_due(now));
  EXPECT_FALSE(link.is_touch_due(now + 999ms));
  EXPECT_TRUE(link.is_touch_due(now + 1s));
}

TEST_F(ClusterLinkTest, RunTimesAreToldTwiceASecondAndLessOftenInALargeCluster) {
  EXPECT_FALSE(link.take_pace(now));
  wire::Pace ran;
  ran.sites.push_back({{}, 1, 10});
  const auto run = [&] { link.add_pace(ran); };
  run();
  run();
  const auto told = link.take_pace(now);
  ASSERT_TRUE(told);
  ASSERT_EQ(told->sites.size(), 1u);
  EXPECT_EQ(told->sites[0].tasks, 2u);
  run();
  EXPECT_FALSE(link.take_pace(now + 499ms));
  for (std::uint64_t n = 10; n < 138; ++n) add(n);
  tell();
  EXPECT_TRUE(link.take_pace(now + 500ms));
  run();
  EXPECT_FALSE(link.take_pace(now + 1999ms));
  EXPECT_TRUE(link.take_pace(now + 2s));
}

}  // namespace
}  // namespace troupe::agent::cluster_link_test
