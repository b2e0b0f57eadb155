// Tests requests of jobs of which some nodes never start a worker: such a node is asked no more, and
// a request that no other node could take is refused with the node's reason.
#include "tests/runtime/scheduling/views.hpp"
#include "troupe/runtime/scheduling/lease_table.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace troupe::scheduling {
namespace {

using namespace std::chrono_literals;

constexpr JobNumber kJob = 7, kOtherJob = 8;
constexpr RequestKind kOfJob{.spilled = false, .dedicated = false, .job = kJob};
constexpr RequestKind kOfOtherJob{.spilled = false, .dedicated = false, .job = kOtherJob};

ResourceDemand cpus(double count) {
  ResourceDemand demand;
  demand.need.cpus = amount_of(count);
  return demand;
}
ResourceDemand on(std::uint64_t node, bool soft = false) {
  ResourceDemand demand = cpus(1);
  demand.placement = Placement::node;
  demand.node = node_id(node);
  demand.soft = soft;
  return demand;
}

/// A node of two CPUs that knows one of four, node 2, and one of two, node 3.
struct RefusalsTest : testing::Test {
  static LeaseOptions two_cpus() {
    LeaseOptions options;
    options.total.cpus = amount_of(2);
    return options;
  }
  RefusalsTest() {
    table.update_node(node(2, 4), now);
    table.update_node(node(3, 2), now);
  }
  void ask(LeaseKey key, const ResourceDemand& demand, RequestKind kind = kOfJob) {
    table.request(1, key, demand, 1, now, kind);
    take();
  }
  /// What the agent does when that node refuses the job while it was asked for one lease.
  void refuse(std::uint64_t node, LeaseKey key, const ResourceDemand& demand) {
    table.job_refused(kJob, node_id(node), "node " + std::to_string(node) + " cannot", now);
    table.spill_failed(1, key, demand, 1, now, kOfJob, node_id(node));
    take();
  }
  void take() {
    spilled.clear();
    refused.clear();
    for (const LeaseEvent& event : table.take_events()) {
      if (const auto* one = std::get_if<Spilled>(&event)) {
        spilled.push_back(one->node);
        no_faster = one->no_faster;
      }
      if (const auto* one = std::get_if<Refused>(&event)) refused.emplace_back(one->key, one->why);
    }
  }
  using Nodes = std::vector<NodeId>;
  using Reasons = std::vector<std::pair<LeaseKey, std::string>>;

  Time now{1s};
  LeaseTable table{two_cpus(), node_id(1)};
  Nodes spilled;
  bool no_faster = false;  ///< of the last one spilled
  Reasons refused;
};

TEST_F(RefusalsTest, ARequestForThatNodeAloneFailsAtOnce) {
  ask(1, on(2));
  ASSERT_EQ(spilled, Nodes{node_id(2)});
  refuse(2, 1, on(2));
  EXPECT_EQ(refused, (Reasons{{LeaseKey::of(1), std::string("node 2 cannot")}}));
  EXPECT_TRUE(spilled.empty());
  EXPECT_EQ(table.wanted(1, 1), 0u);
  ask(1, on(2));
  EXPECT_EQ(refused, (Reasons{{LeaseKey::of(1), std::string("node 2 cannot")}}))
      << "so does the next one";
  ask(2, on(2), kOfOtherJob);
  EXPECT_EQ(spilled, Nodes{node_id(2)}) << "that node takes other jobs";
}

TEST_F(RefusalsTest, ARequestThatWaitsForThatNodeFailsToo) {
  NodeView full = node(2, 4);
  full.free.cpus = 0;
  table.update_node(full, now);
  ask(1, on(2));
  ask(2, on(2), kOfOtherJob);
  EXPECT_TRUE(spilled.empty());
  table.job_refused(kJob, node_id(2), "no program", now);
  take();
  EXPECT_EQ(refused, (Reasons{{LeaseKey::of(1), std::string("no program")}}));
  EXPECT_EQ(table.wanted(1, 2), 1u);
}

TEST_F(RefusalsTest, ARequestThatAnotherNodeCouldTakeGoesThere) {
  table.update_node(node(3, 8), now);
  ask(1, cpus(2));
  ASSERT_EQ(spilled, Nodes{node_id(2)});
  refuse(2, 1, cpus(2));
  EXPECT_EQ(spilled, Nodes{node_id(3)});
  EXPECT_TRUE(refused.empty());
  ask(2, on(2, true));
  EXPECT_TRUE(spilled.empty());
  EXPECT_TRUE(refused.empty());
  EXPECT_EQ(table.wanted(1, 2), 1u) << "it waits for a worker here";
}

TEST_F(RefusalsTest, ARequestFailsWhenTheLastNodeThatCouldTakeItRefusesOrIsGone) {
  table.update_node(node(3, 4), now);
  ask(1, cpus(4));
  ASSERT_EQ(spilled, Nodes{node_id(2)});
  refuse(2, 1, cpus(4));
  ASSERT_EQ(spilled, Nodes{node_id(3)});
  refuse(3, 1, cpus(4));
  EXPECT_EQ(refused, (Reasons{{LeaseKey::of(1), std::string("node 2 cannot")}}));
  table.node_gone(node_id(3), now);
  table.update_node(node(3, 4), now);
  NodeView full = node(3, 4);
  full.free.cpus = 0;
  table.update_node(full, now);
  ask(1, cpus(4));
  EXPECT_TRUE(refused.empty()) << "the node may be asked again, and is full";
  table.node_gone(node_id(3), now);
  take();
  EXPECT_EQ(refused, (Reasons{{LeaseKey::of(1), std::string("node 2 cannot")}}));
}

TEST_F(RefusalsTest, ASlowNodeWaitsForNoNodeThatRefuses) {
  table.node_gone(node_id(3), now);
  table.set_slow(true, now);
  ask(1, cpus(1));
  ASSERT_EQ(spilled, Nodes{node_id(2)});
  refuse(2, 1, cpus(1));
  EXPECT_TRUE(refused.empty());
  table.worker_started(50, now, false, kJob);
  std::size_t granted = 0;
  for (const LeaseEvent& event : table.take_events())
    granted += std::holds_alternative<Granted>(event) ? 1 : 0;
  EXPECT_EQ(granted, 1u);
}

TEST_F(RefusalsTest, ASlowNodeIsToldThatTheFasterOnesRefuse) {
  NodeView slow = node(3, 4);
  slow.slow = true;
  table.update_node(slow, now);
  ask(1, on(3));
  EXPECT_EQ(spilled, Nodes{node_id(3)});
  EXPECT_FALSE(no_faster) << "no node refuses the job";
  ask(2, cpus(4));
  ASSERT_EQ(spilled, Nodes{node_id(2)});
  table.update_node(slow, now);
  refuse(2, 2, cpus(4));
  EXPECT_EQ(spilled, Nodes{node_id(3)});
  EXPECT_TRUE(no_faster);
  slow.slow = false;
  table.update_node(slow, now);
  ask(3, cpus(4));
  EXPECT_EQ(spilled, Nodes{node_id(3)});
  EXPECT_FALSE(no_faster) << "the node is as fast as others";
}

TEST_F(RefusalsTest, ASlowNodeTakesARequestThatNoFasterNodeTakes) {
  RequestKind passed_on{.spilled = true, .dedicated = false, .job = kJob};
  table.set_slow(true, now);
  ask(1, cpus(2), passed_on);
  EXPECT_EQ(refused.size(), 1u) << "node 2 could take it";
  passed_on.no_faster = true;
  ask(1, cpus(2), passed_on);
  EXPECT_TRUE(refused.empty());
  table.worker_started(50, now, false, kJob);
  std::size_t granted = 0;
  for (const LeaseEvent& event : table.take_events())
    granted += std::holds_alternative<Granted>(event) ? 1 : 0;
  EXPECT_EQ(granted, 1u);
}

TEST_F(RefusalsTest, ANodeIsAskedAgainOnceTheJobHasEndedOrTheNodeWasGone) {
  ask(1, on(2));
  refuse(2, 1, on(2));
  table.job_ended(kJob, now);
  ask(1, on(2));
  EXPECT_EQ(spilled, Nodes{node_id(2)}) << "a detached actor asks";
  refuse(2, 1, on(2));
  table.node_gone(node_id(2), now);
  table.update_node(node(2, 4), now);
  ask(1, on(2));
  EXPECT_EQ(spilled, Nodes{node_id(2)});
}

TEST_F(RefusalsTest, ARefusalOfAnUnknownNodeOrOfThisOneChangesNothing) {
  table.job_refused(kJob, node_id(9), "no program", now);
  table.job_refused(kJob, node_id(1), "no program", now);
  table.update_node(node(9, 4), now);
  ask(1, on(9));
  EXPECT_EQ(spilled, Nodes{node_id(9)});
  ask(2, on(1));
  EXPECT_TRUE(refused.empty());
}

TEST_F(RefusalsTest, ADemandThatNoNodeCouldEverTakeWaitsAsBefore) {
  table.job_refused(kJob, node_id(2), "no program", now);
  ask(1, cpus(64));
  EXPECT_TRUE(refused.empty());
  EXPECT_EQ(table.explain(1, 1), "needs 64 CPU, no node has more than 2");
}

TEST_F(RefusalsTest, ADemandThatIsTooLargeForTheNodeThatRefusesSaysSo) {
  table.job_refused(kJob, node_id(2), "no program", now);
  ResourceDemand demand = on(2);
  demand.need.cpus = amount_of(64);
  ask(1, demand);
  EXPECT_TRUE(refused.empty());
  EXPECT_EQ(table.explain(1, 1), "needs 64 CPU, node n2 has only 4");
}

TEST(Refusals, OthersOfTheJobStayWhenANodeIsForgotten) {
  Refusals refusals;
  EXPECT_TRUE(refusals.add(kJob, node_id(3), "c"));
  EXPECT_TRUE(refusals.add(kJob, node_id(2), "b"));
  EXPECT_FALSE(refusals.add(kJob, node_id(3), "later"));
  ClusterView view;
  view.update(node(2, 1));
  view.update(node(3, 4));
  EXPECT_EQ(refusals.why(view, kJob, cpus(4)), "c");
  EXPECT_EQ(refusals.why(view, kJob, cpus(1)), "b");
  refusals.forget(node_id(2));
  EXPECT_FALSE(refusals.has(kJob, node_id(2)));
  EXPECT_EQ(refusals.why(view, kJob, cpus(1)), "c");
  EXPECT_EQ(refusals.without(view, kJob).nodes.size(), 1u);
  refusals.forget(node_id(3));
  EXPECT_TRUE(refusals.empty());
}

}  // namespace
}  // namespace troupe::scheduling
