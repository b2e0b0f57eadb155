// Tests placement: what each strategy chooses, and what each refusal says.
#include "tests/runtime/scheduling/views.hpp"

#include <gtest/gtest.h>
#include <limits>

namespace troupe::scheduling {
namespace {

TEST(Policy, PacksToHalfUseThenSpreads) {
  ClusterView view = cluster({node(1, 4), node(2, 4), node(3, 4)}, 2);
  std::vector<std::uint64_t> order;
  for (int i = 0; i < 8; ++i) {
    const Decision d = place(view, demand(1));
    ASSERT_EQ(d.kind, Decision::Kind::place);
    order.push_back(d.node.low);
    take(*view.find(d.node), demand(1).need);
  }
  // The strategy takes this node up to half, then the others in order up to half, then the least
  // used one, this node first.
  EXPECT_EQ(order, (std::vector<std::uint64_t>{2, 2, 1, 1, 3, 3, 2, 1}));
}

TEST(Policy, PackAndSpread) {
  ClusterView view = cluster({node(1, 4), node(2, 4)}, 1);
  take(*view.find(node_id(2)), demand(2).need);
  ResourceDemand s = demand(1);
  s.placement = Placement::pack;
  EXPECT_EQ(place(view, s).node, node_id(2));
  s.placement = Placement::spread;
  EXPECT_EQ(place(view, s).node, node_id(1));
}

TEST(Policy, NodeRequestHardAndSoft) {
  ClusterView view = cluster({node(1, 4), node(2, 1)});
  ResourceDemand s = demand(2);
  s.placement = Placement::node;
  s.node = node_id(2);
  EXPECT_EQ(place(view, s).why, "needs 2 CPU, node n2 has only 1");
  s.soft = true;
  EXPECT_EQ(place(view, s).node, node_id(1));
  s.need.cpus = kUnit;
  EXPECT_EQ(place(view, s).node, node_id(2));
  s.soft = false;
  s.node = node_id(9);
  EXPECT_EQ(place(view, s).kind, Decision::Kind::infeasible);
  EXPECT_NE(place(view, s).why.find("which is not here"), std::string::npos);
}

TEST(Policy, ASlowNodeGetsOnlyWhatNobodyElseCouldEverTake) {
  ClusterView view = cluster({node(1, 4), node(2, 4), node(3, 8)}, 1);
  view.find(node_id(1))->slow = true;
  EXPECT_EQ(place(view, demand(1)).node, node_id(2)) << "though it asks itself";
  ResourceDemand request = demand(1);
  request.placement = Placement::node;
  request.node = node_id(1);
  EXPECT_EQ(place(view, request).node, node_id(1)) << "it must";
  request.soft = true;
  EXPECT_EQ(place(view, request).node, node_id(2));
  take(*view.find(node_id(2)), demand(4).need);
  take(*view.find(node_id(3)), demand(8).need);
  EXPECT_EQ(place(view, demand(1)).kind, Decision::Kind::busy) << "it waits for others";
  view.find(node_id(3))->slow = true;
  EXPECT_EQ(place(view, demand(5)).kind, Decision::Kind::busy);
  give_back(*view.find(node_id(3)), demand(8).need);
  EXPECT_EQ(place(view, demand(5)).node, node_id(3)) << "nobody else is large enough";
  view.find(node_id(2))->accepts = false;
  EXPECT_EQ(place(view, demand(1)).node, node_id(1)) << "all that accept are slow";
}

TEST(Policy, LocalityBeatsTheAskingNode) {
  ClusterView view = cluster({node(1, 4), node(2, 4), node(3, 4)}, 1);
  ResourceDemand s = demand(1);
  s.locality = {{node_id(2), 100}, {node_id(3), 5000}};
  EXPECT_EQ(place(view, s).node, node_id(3));
  take(*view.find(node_id(3)), demand(4).need);
  EXPECT_EQ(place(view, s).node, node_id(2));  // the next best, not a queue
}

TEST(Policy, LabelsMustAllMatch) {
  ClusterView view = cluster({node(1, 4), node(2, 4)});
  view.nodes[1].labels = {{"zone", "b"}, {"disk", "ssd"}};
  ResourceDemand s = demand(1);
  s.labels = {{"zone", "b"}, {"disk", "ssd"}};
  EXPECT_EQ(place(view, s).node, node_id(2));
  s.labels = {{"zone", "a"}};
  EXPECT_EQ(place(view, s).why, "needs label zone=a, no node has it");
}

TEST(Policy, InfeasibleSaysWhat) {
  ClusterView view = cluster({node(1, 4, 1), node(2, 8)});
  EXPECT_EQ(place(view, demand(1, 2)).why, "needs 2 GPU, no node has more than 1");
  EXPECT_EQ(place(view, demand(16)).why, "needs 16 CPU, no node has more than 8");
  EXPECT_EQ(place(view, demand(8, 1)).why, "needs 1 GPU, 8 CPU, no single node has all of it");
  EXPECT_EQ(place(view, demand(1, 1.5)).why,
            "needs 1.5 GPU: more than one GPU must be a whole number");
  ResourceDemand s = demand(1);
  s.need.custom = {{"license", kUnit}};
  EXPECT_EQ(place(view, s).why, "needs 1 license, no node has more than 0");
  s = demand(0);
  s.need.memory = 9ll << 30;
  EXPECT_EQ(place(view, s).why, "needs 9 GiB memory, no node has more than 8 GiB");
  EXPECT_EQ(place(ClusterView{}, demand(1)).why, "there are no nodes");
}

TEST(Policy, WhatNobodyCanHaveIsInfeasibleAndNeverOverflows) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  ClusterView view = cluster({node(1, 4)});
  view.find(node_id(1))->total.custom = {{"tpu", kUnit}};
  view.find(node_id(1))->free = view.find(node_id(1))->total;
  std::vector<Resources> needs(6);
  needs[0].memory = -1;  // the result of narrowing a value with all bits set
  needs[1].memory = kMost;
  needs[2].cpus = -kUnit;
  needs[3].custom = {{"tpu", kUnit}, {"tpu", kUnit}};
  needs[4].custom = {{"tpu", kMost}, {"tpu", kMost}, {"tpu", 2}};
  needs[5].custom = {{"tpu", -1}};
  for (Resources& need : needs) {
    normalize(need);
    EXPECT_EQ(place(view, {.need = need}).kind, Decision::Kind::infeasible) << &need - needs.data();
  }
  EXPECT_EQ(needs[3].custom, (decltype(needs[3].custom){{"tpu", 2 * kUnit}}));
  EXPECT_EQ(needs[4].custom, (decltype(needs[4].custom){{"tpu", kMostAmount}}));
  EXPECT_EQ(at_most_amount(~std::uint64_t{0}), kMostAmount);
  EXPECT_EQ(at_most_amount(7), 7);
}

TEST(Policy, BusyIsNotInfeasible) {
  ClusterView view = cluster({node(1, 2), node(2, 2)});
  for (auto& n : view.nodes) take(n, demand(1.5).need);
  const Decision d = place(view, demand(1));
  EXPECT_EQ(d.kind, Decision::Kind::busy);
  EXPECT_EQ(d.node, view.self);
  EXPECT_EQ(d.why, "waits for 1 CPU: of the 2 node(s) that have it, none has more than 0.5 free");
  for (auto& n : view.nodes) n.accepts = false;
  EXPECT_EQ(place(view, demand(0.1)).kind, Decision::Kind::busy);
}

TEST(Policy, GpuSharesStayOnOneDevice) {
  EXPECT_EQ(choose_gpus({kUnit, kUnit / 2}, kUnit / 2),
            (std::vector<std::int32_t>{1}));  // the best fit
  EXPECT_EQ(choose_gpus({kUnit * 4 / 10, kUnit * 4 / 10}, kUnit / 2),
            (std::vector<std::int32_t>{}));
  EXPECT_EQ(choose_gpus({kUnit, kUnit / 2, kUnit}, 2 * kUnit), (std::vector<std::int32_t>{0, 2}));
  ClusterView view = cluster({node(1, 4, 2)});
  for (auto& free : view.nodes[0].gpu_free) free = kUnit * 4 / 10;
  view.nodes[0].free.gpus = kUnit * 8 / 10;
  EXPECT_EQ(place(view, demand(0, 0.5)).kind, Decision::Kind::busy);  // 0.8 are free, not on one
}

TEST(Policy, OfNodesThatAreEquallyFreeTheOneWhereNobodyWaits) {
  ClusterView view;
  view.self = node_id(1);
  view.update(node(1, 0));
  NodeView crowded = node(2, 4);
  crowded.waiting = 1;  // for a starting worker: its resources count as free
  view.update(crowded);
  view.update(node(3, 4));
  EXPECT_EQ(place(view, demand(1)).node, node_id(3));
}

}  // namespace
}  // namespace troupe::scheduling
