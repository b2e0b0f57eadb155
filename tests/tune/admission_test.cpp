// Tests on which node a trial runs, how many fit, and what is refused.
#include "troupe/tune/internal/admission.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace admissions {

using namespace troupe::tune;
using troupe::NodeId;
using troupe::NodeInfo;
using troupe::Time;
using Policy = Admission::Policy;
using namespace std::chrono_literals;

constexpr Time kNow = Time{} + 100s;

NodeInfo node(int number, double cpus, double gpus = 0) {
  NodeInfo info;
  info.id = NodeId{0, static_cast<std::uint64_t>(number) + 1};
  info.name = "node-" + std::to_string(number);
  info.cpus = info.cpus_free = cpus;
  info.gpus = info.gpus_free = gpus;
  info.memory = troupe::Bytes{std::uint64_t{4} << 30};
  return info;
}

/// Spawns an attempt where the admission says, and returns the node's number, or -1.
int spawn(Admission& admission, int host, std::optional<NodeId> prefer = {}) {
  const Admission::Choice choice = admission.choose(prefer, kNow);
  EXPECT_LT(choice.host, 0);
  admission.spawned(host, choice.node);
  if (choice.node) admission.ready(host, *choice.node);
  for (int number = 0; number < 10; ++number)
    if (choice.node == node(number, 1).id) return number;
  return -1;
}

TEST(Admission, SpreadTakesTheNodeWithTheLeastUse) {
  Admission admission({}, Policy::spread);
  admission.nodes({node(0, 2), node(1, 4), node(2, 2)}, kNow);
  EXPECT_EQ(admission.room(kNow), 8);
  std::vector<int> where;
  for (int host = 0; host < 8; ++host) where.push_back(spawn(admission, host));
  EXPECT_EQ(where, (std::vector<int>{0, 1, 2, 1, 0, 1, 2, 1}));
  EXPECT_EQ(admission.room(kNow), 8);
  EXPECT_FALSE(admission.choose({}, kNow).node) << "no node has room";
}

TEST(Admission, PackFillsOneNodeAfterTheOther) {
  Admission admission({.cpus = 2}, Policy::pack);
  admission.nodes({node(0, 4), node(1, 5), node(2, 1)}, kNow);
  EXPECT_EQ(admission.room(kNow), 4);
  std::vector<int> where;
  for (int host = 0; host < 4; ++host) where.push_back(spawn(admission, host));
  EXPECT_EQ(where, (std::vector<int>{0, 0, 1, 1}));
}

TEST(Admission, TheNodeWithTheCheckpointComesFirstIfItHasRoom) {
  Admission admission({}, Policy::spread);
  admission.nodes({node(0, 1), node(1, 2)}, kNow);
  EXPECT_EQ(spawn(admission, 0, node(1, 2).id), 1);
  EXPECT_EQ(spawn(admission, 1, node(1, 2).id), 1);
  EXPECT_EQ(spawn(admission, 2, node(1, 2).id), 0) << "node-1 is full";
}

TEST(Admission, AnIdleProcessTakesTheNextAttemptAndKeepsItsPlace) {
  Admission admission({}, Policy::spread);
  admission.nodes({node(0, 1), node(1, 1)}, kNow);
  spawn(admission, 0);
  spawn(admission, 1);
  EXPECT_EQ(admission.room(kNow), 2);
  admission.idle(1);
  EXPECT_EQ(admission.room(kNow), 2);
  EXPECT_EQ(admission.choose({}, kNow).host, 1);
  EXPECT_EQ(admission.choose(node(0, 1).id, kNow).host, 1) << "node-0 is full";
  admission.resumed(1);
  EXPECT_FALSE(admission.choose({}, kNow).node);
  admission.gone(0, kNow);
  EXPECT_EQ(admission.choose({}, kNow).node, node(0, 1).id);
}

TEST(Admission, WhatOtherProgramsHoldIsNoRoom) {
  Admission admission({}, Policy::spread);
  NodeInfo shared = node(0, 4);
  shared.cpus_free = 1;  // others hold 3
  admission.nodes({shared, node(1, 1)}, kNow);
  EXPECT_EQ(admission.room(kNow), 2);
  EXPECT_EQ(spawn(admission, 0), 1) << "node-0 has more use";
  EXPECT_EQ(spawn(admission, 1), 0);
  shared.cpus_free = 0;  // and one of the CPUs that were free is that of host 1
  NodeInfo own = node(1, 1);
  own.cpus_free = 0;
  admission.nodes({shared, own}, kNow);
  EXPECT_EQ(admission.room(kNow), 2);
  admission.gone(1, kNow);
  EXPECT_EQ(admission.room(kNow), 2) << "the view is older than the end of host 1";
  EXPECT_EQ(admission.room(kNow + 3s), 1);
}

TEST(Admission, OneAttemptWaitsWhenAllRoomIsTaken) {
  Admission admission({}, Policy::spread);
  NodeInfo full = node(0, 2);
  full.cpus_free = 0;
  admission.nodes({full}, kNow);
  EXPECT_EQ(admission.never(), "");
  EXPECT_EQ(admission.room(kNow), 1) << "one asks for room, and no more";
  const Admission::Choice choice = admission.choose({}, kNow);
  EXPECT_FALSE(choice.node) << "the scheduler of the cluster finds the first room";
  admission.spawned(0, choice.node);
  EXPECT_TRUE(admission.waits(0));
  EXPECT_EQ(admission.room(kNow), 1);
  EXPECT_EQ(admission.needs(), "1 CPU");
  admission.ready(0, full.id);
  EXPECT_FALSE(admission.waits(0));
}

TEST(Admission, LostDrainingAndSilentNodesGetNothing) {
  Admission admission({}, Policy::spread);
  NodeInfo drains = node(0, 2), suspect = node(1, 2);
  drains.draining = true;
  suspect.suspect = true;
  suspect.alive = false;
  admission.nodes({drains, suspect, node(2, 1)}, kNow);
  EXPECT_EQ(admission.room(kNow), 1);
  EXPECT_EQ(spawn(admission, 0, drains.id), 2);
  EXPECT_FALSE(admission.accepts(drains.id));
  EXPECT_FALSE(admission.accepts(node(7, 1).id));
  EXPECT_TRUE(admission.accepts(node(2, 1).id));
  admission.nodes({node(2, 1), node(3, 2)}, kNow);  // one joined
  EXPECT_EQ(admission.room(kNow), 3);
  EXPECT_EQ(spawn(admission, 1), 3);
}

TEST(Admission, AShareOfAGpuLiesOnOneDevice) {
  Admission admission({.cpus = 0, .gpus = 0.4}, Policy::spread);
  admission.nodes({node(0, 8, 2)}, kNow);
  EXPECT_EQ(admission.room(kNow), 4) << "two on each device, not five on two";
}

TEST(Admission, MemoryAndOwnResourcesLimitToo) {
  Admission memory({.memory = troupe::Bytes{std::uint64_t{3} << 30}}, Policy::spread);
  memory.nodes({node(0, 8)}, kNow);
  EXPECT_EQ(memory.room(kNow), 1);
  Admission own({.resources = {{"licence", 2}}}, Policy::spread);
  NodeInfo with = node(0, 8);
  with.resources = {{"licence", 5}};
  own.nodes({with, node(1, 8)}, kNow);
  EXPECT_EQ(own.room(kNow), 2);
  EXPECT_EQ(own.needs(), "1 CPU and 2 licence");
}

TEST(Admission, LabelsAreLeftToTheSchedulerOneAttemptAtATime) {
  Admission admission({.labels = {{"zone", "a"}}}, Policy::spread);
  admission.nodes({node(0, 4), node(1, 4)}, kNow);
  EXPECT_EQ(admission.room(kNow), 1);
  const Admission::Choice choice = admission.choose({}, kNow);
  EXPECT_FALSE(choice.node);
  admission.spawned(0, choice.node);
  EXPECT_EQ(admission.room(kNow), 1) << "it waits";
  admission.ready(0, node(1, 4).id);
  EXPECT_EQ(admission.room(kNow), 2);
}

TEST(Admission, AGangOfOneNodeTakesTheSum) {
  Admission admission({.cpus = 1, .workers = 3}, Policy::spread);
  admission.nodes({node(0, 4), node(1, 7)}, kNow);
  EXPECT_FALSE(admission.over_nodes());
  EXPECT_EQ(admission.host_need().cpus, 3);
  EXPECT_EQ(admission.room(kNow), 3);
  EXPECT_EQ(admission.slots(), 3);
}

TEST(Admission, AGangOverNodesReservesNothingAndWaitsAlone) {
  Admission admission({.cpus = 1, .workers = 3}, Policy::spread);
  std::vector<NodeInfo> nodes{node(0, 2), node(1, 2), node(2, 2)};
  admission.nodes(nodes, kNow);
  EXPECT_TRUE(admission.over_nodes());
  EXPECT_EQ(admission.never(), "");
  EXPECT_EQ(admission.host_need().cpus, 0);
  EXPECT_EQ(admission.room(kNow), 1);
  EXPECT_EQ(spawn(admission, 0), 0);
  EXPECT_TRUE(admission.waits(0)) << "until its ranks are ready";
  EXPECT_EQ(admission.room(kNow), 1);
  admission.gathered(0);
  nodes[0].cpus_free = 0;
  nodes[1].cpus_free = 1;
  admission.nodes(nodes, kNow);
  EXPECT_EQ(admission.room(kNow), 2);
  nodes[1].cpus_free = 0;
  admission.nodes(nodes, kNow);
  EXPECT_EQ(admission.room(kNow), 1) << "two CPUs are left, and a gang needs three";
}

TEST(Admission, WhatFitsNowhereIsRefusedWithWhatThereIs) {
  const auto never = [](const PerTrial& need, const std::vector<NodeInfo>& nodes) {
    Admission admission(need, Policy::spread);
    admission.nodes(nodes, kNow);
    return admission.never();
  };
  EXPECT_EQ(never({.cpus = 3}, {node(0, 2), node(1, 2.5)}),
            "tune: a trial needs 3 CPUs, and the largest node, node-1, has 2.5 CPUs: lower "
            "Options::per_trial, or add a larger node");
  EXPECT_EQ(never({.cpus = 1, .gpus = 1}, {node(0, 2)}),
            "tune: a trial needs 1 CPU and 1 GPU, and the largest node, node-0, has 2 CPUs and no "
            "GPU: lower Options::per_trial, or add a larger node");
  EXPECT_EQ(never({.resources = {{"licence", 1}}}, {node(0, 2)}),
            "tune: a trial needs 1 CPU and 1 licence, and the largest node, node-0, has 2 CPUs and "
            "0 licence: lower Options::per_trial, or add a larger node");
  EXPECT_EQ(never({.cpus = 2, .workers = 3}, {node(0, 2), node(1, 3)}),
            "tune: a trial needs 6 CPUs for 3 workers of 2 CPUs, and the cluster has room for 2 "
            "workers: lower Options::per_trial, or add a larger node");
  EXPECT_EQ(never({.cpus = 1, .gpus = 1, .workers = 3}, {node(0, 8, 2), node(1, 8, 1)}),
            "tune: a trial needs 3 CPUs and 3 GPUs for 3 workers of 1 CPU and 1 GPU, and the "
            "largest node, node-0, has 8 CPUs and 2 GPUs: lower Options::per_trial, or add a "
            "larger node");
}

std::string refusal(const PerTrial& need) {
  try {
    const Admission admission(need, Policy::spread);
  } catch (const troupe::InvalidArgument& error) {
    return error.message();
  }
  return "";
}

TEST(Admission, BadAmountsAreRefused) {
  EXPECT_EQ(refusal({.cpus = -1}),
            "tune: per_trial.cpus is -1: give a number that is not negative");
  EXPECT_EQ(refusal({.cpus = std::nan("")}),
            "tune: per_trial.cpus is nan: give a number that is not negative");
  EXPECT_EQ(refusal({.gpus = std::numeric_limits<double>::infinity()}),
            "tune: per_trial.gpus is inf: give a number that is not negative");
  EXPECT_EQ(refusal({.gpus = 1.5}),
            "tune: per_trial.gpus is 1.5: give a whole number, or a fraction of one GPU");
  EXPECT_EQ(refusal({.resources = {{"licence", -2}}}),
            "tune: per_trial.resources, licence, is -2: give a number that is not negative");
  EXPECT_EQ(refusal({.workers = -1}),
            "tune: per_trial.workers is -1: give the ranks of the trial's gang, 1 to 1024, or 0 "
            "without a gang");
  EXPECT_EQ(refusal({.cpus = 0, .gpus = 0.25}), "");
}

}  // namespace admissions
