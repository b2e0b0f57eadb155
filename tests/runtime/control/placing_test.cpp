// Tests on which nodes actors are placed: by their demands and the nodes' reports, in order of
// arrival, and not on slow nodes. A demand that no node can meet ends in a typed error.
#include "tests/runtime/control/service_fixture.hpp"

#include <gtest/gtest.h>

namespace troupe::control::service_test {
namespace {

struct PlacingTest : ServiceTest {};

TEST_F(PlacingTest, ASlowNodeIsSaidOnceShownToAllAndGetsNoActorThatAnotherCanTake) {
  join_all();
  for (const NodeId node : {kA, kB, kC}) report(node, 4, node == kC ? 2 : 0);
  const auto work = [&](Duration of_b, int rounds) {
    for (int i = 0; i < rounds; ++i) {
      for (const NodeId node : {kA, kB, kC}) {
        const auto each = static_cast<std::uint64_t>(node == kB ? of_b.count() : 10'000'000);
        say(node, NodePace{{{{1, 2}, 10, 10 * each}}});
      }
      pass(500ms, {kA, kB, kC});
    }
  };
  work(80ms, 4);
  ASSERT_EQ(out.said.size(), 1u);
  EXPECT_EQ(out.said[0],
            "node n2 is slow: its tasks take 8.0 times as long as the median of 3 nodes; it gets "
            "no new work while others can take it");
  const auto row_of_b = [&] { return last<ClusterNodes>(kA).rows.at(1); };
  EXPECT_EQ(row_of_b().description.id, kB);
  EXPECT_TRUE(row_of_b().avoided);
  EXPECT_EQ(row_of_b().slow, "its tasks take 8.0 times as long as the median of 3 nodes");
  ActorSpec request = spec(1, 1);
  request.demand.placement = scheduling::Placement::node;
  request.demand.node = kB;
  request.demand.soft = true;
  EXPECT_TRUE(spawn(request).created);
  EXPECT_NE(placed(1), kB);
  ActorSpec must = spec(2, 1);
  must.demand.placement = scheduling::Placement::node;
  must.demand.node = kB;
  EXPECT_TRUE(spawn(must).created);
  EXPECT_EQ(placed(2), kB) << "no other node may take it";
  work(10ms, 4);
  ASSERT_EQ(out.said.size(), 2u);
  EXPECT_EQ(out.said[1], "node n2 is as fast as others again");
  EXPECT_FALSE(row_of_b().avoided);
  EXPECT_EQ(row_of_b().slow, "");
}

TEST_F(PlacingTest, AnActorIsPlacedByItsNeedStartedAndSeenByItsWatchers) {
  join_all();
  ActorSpec s = spec(1, 1);
  s.demand.need.gpus = kUnit;
  EXPECT_TRUE(spawn(s).created);
  EXPECT_EQ(placed(1), kC);  // only kC has GPUs
  say(kB, WatchActor{s.id});
  EXPECT_EQ(last<ActorLocation>(kB).state, ActorState::placing);
  started(1);
  const ActorLocation seen = last<ActorLocation>(kB);
  EXPECT_EQ(seen.state, ActorState::alive);
  EXPECT_EQ(seen.node, kC);
  EXPECT_EQ(seen.worker, ProcessIndex{41});
  EXPECT_EQ(seen.incarnation >> 32, service->control_epoch());
  say(kB, WatchActor{s.id, false});
  const std::size_t before = told<ActorLocation>(kB).size();
  say(kA, KillActor{s.id});
  EXPECT_EQ(told<ActorLocation>(kB).size(), before);
  EXPECT_EQ(told<StopActorAt>(kC).size(), 1u);
}

TEST_F(PlacingTest, ActorsPackOnTheirOwnersNodeAndThenSpread) {
  join_all();
  for (std::uint64_t n = 1; n <= 6; ++n) spawn(spec(n, 1));
  EXPECT_EQ(placed(1), kA);
  EXPECT_EQ(placed(2), kA);
  EXPECT_NE(placed(3), kA);  // half of kA is in use
  std::map<NodeId, int> count;
  for (std::uint64_t n = 1; n <= 6; ++n) ++count[placed(n)];
  EXPECT_EQ(count.size(), 3u);
}

/// The actors reserve nothing, so no report tells the nodes apart.
TEST_F(PlacingTest, ActorsThatReserveNothingAreSpreadByTheirCount) {
  join_all();
  for (const NodeId node : {kA, kB, kC}) report(node, 4, node == kC ? 2 : 0);
  const auto spread = [&](std::uint64_t n) {
    ActorSpec s = spec(n, 0);
    s.demand.need = {};
    s.demand.placement = scheduling::Placement::spread;
    spawn(s);
    return placed(n);
  };
  std::map<NodeId, int> count;
  for (std::uint64_t n = 1; n <= 6; ++n) {
    ++count[spread(n)];
    started(n);
    pass(250ms, {kA, kB, kC});
  }
  for (const NodeId node : {kA, kB, kC}) EXPECT_EQ(count[node], 2) << node.str();
  for (std::uint64_t n = 1; n <= 3; ++n) {  // one actor of each node ends
    const NodeId node = placed(n);
    say(node, ActorGone{spec(n, 0).id, start_of(n).incarnation, nullptr, true});
  }
  count.clear();
  for (std::uint64_t n = 7; n <= 9; ++n) ++count[spread(n)];
  EXPECT_EQ(count.size(), 3u) << "also all at once";
}

TEST_F(PlacingTest, ANodeThatTheOwnerCannotReachGetsNoneOfItsActors) {
  join_all();
  NodeReport message;
  message.view.free.cpus = 1 * kUnit;
  message.unreachable = {kB, kC};
  say(kA, message);
  spawn(spec(1, 1));
  spawn(spec(2, 1));
  EXPECT_EQ(placed(1), kA);
  EXPECT_EQ(placed(2), NodeId{}) << "there is room only where its owner's calls do not arrive";
  ActorSpec of_b = spec(3, 1);
  of_b.owner = kB;
  spawn(of_b, kB);
  pass(250ms, {kA, kB, kC});
  EXPECT_NE(placed(3), NodeId{}) << "others go there, and do not wait behind it";
  message.unreachable = {kB};
  say(kA, message);
  pass(250ms, {kA, kB, kC});
  EXPECT_EQ(placed(2), kC);
}

TEST_F(PlacingTest, WhatWasPlacedIsReckonedUntilAReportShowsIt) {
  join(kA, 4);
  for (std::uint64_t n = 1; n <= 5; ++n) {
    ActorSpec s = spec(n, 1);
    s.job = {};
    spawn(s);
  }
  EXPECT_EQ(placed(4), kA);
  EXPECT_EQ(placed(5), NodeId{});  // all four CPUs are taken, although no node has reported
  EXPECT_EQ(service->waiting_actors(), 1u);
  report(kA, 4);  // a report from before the starts: the starts still count as taken
  pass(1s, {kA});
  EXPECT_EQ(placed(5), NodeId{});
  for (std::uint64_t n = 1; n <= 4; ++n) started(n);
  report(kA, 0);
  pass(1s, {kA});
  EXPECT_EQ(placed(5), NodeId{});
  report(kA, 1);  // an actor released its resources
  pass(250ms, {kA});
  EXPECT_EQ(placed(5), kA);
  EXPECT_EQ(service->waiting_actors(), 0u);
}

TEST_F(PlacingTest, ActorsGoToNodesThatHaveProcessesForThem) {
  join_all();
  const auto has_processes = [&](NodeId node, std::uint32_t most) {
    NodeReport message;
    message.view.most_actors = most;
    say(node, message);
  };
  has_processes(kA, 2);
  has_processes(kB, 1);
  has_processes(kC, 2);
  for (std::uint64_t n = 1; n <= 4; ++n) spawn(spec(n, 0));
  EXPECT_EQ(placed(1), kA);
  EXPECT_EQ(placed(2), kA);
  EXPECT_EQ(placed(3), kB);
  EXPECT_EQ(placed(4), kC);
  started(1);
  say(kA, KillActor{ActorId{7, 1}});
  pass(250ms, {kA, kB, kC});
  spawn(spec(5, 0));
  EXPECT_EQ(placed(5), kA) << "one of its actors has ended";
  spawn(spec(6, 0));
  EXPECT_EQ(placed(6), kC);
  spawn(spec(7, 0));
  EXPECT_EQ(placed(7), kA) << "all are full, and this one refuses it";
  ActorSpec must = spec(8, 0);
  must.demand.placement = scheduling::Placement::node;
  must.demand.node = kB;
  spawn(must);
  EXPECT_EQ(placed(8), kB) << "no other node may take it";
}

TEST_F(PlacingTest, AStartThatIsAnsweredWithoutAReportIsReckonedForAMomentOnly) {
  join(kA, 1);
  ActorSpec s = spec(1, 1);
  s.job = {};
  spawn(s);
  s.id = ActorId{7, 2};
  spawn(s);
  started(1);
  EXPECT_EQ(placed(2), NodeId{});
  report(kA, 1);  // its worker needed nothing after all
  pass(250ms, {kA});
  EXPECT_EQ(placed(2), kA);
  say(kA, ActorStartFailed{ActorId{7, 2}, start_of(2).incarnation, nullptr});
  EXPECT_EQ(told<StartActorAt>(kA).size(), 3u);  // placed again at once
}

TEST_F(PlacingTest, AStartThatAResetLostIsNotReckonedAnyMore) {
  join(kA, 1);
  const auto comes_back = [&] {
    service->on_reset(kA, now);
    join(kA, 1);
    NodeHosts hosts;
    hosts.epoch = epochs[kA];
    hosts.control_epoch = service->control_epoch();
    say(kA, hosts);
  };
  ActorSpec s = spec(1, 1);
  s.job = {};
  spawn(s);
  const auto first = start_of(1).incarnation;
  comes_back();
  EXPECT_GT(start_of(1).incarnation, first) << "there is room for it";
  EXPECT_EQ(service->waiting_actors(), 0u);
  EXPECT_EQ(service->view().nodes.at(0).free.cpus, 0);
  say(kA, KillActor{s.id});
  comes_back();  // the second start was lost as well, and the actor is killed
  EXPECT_EQ(service->view().nodes.at(0).free.cpus, kUnit);
}

TEST_F(PlacingTest, WaitingActorsAreTakenInOrder) {
  join(kA, 2);
  for (std::uint64_t n = 1; n <= 6; ++n) {
    ActorSpec s = spec(n, 1);
    s.job = {};
    spawn(s);
  }
  for (const std::uint64_t n : {1, 2}) started(n);
  report(kA, 0);
  say(kA, KillActor{ActorId{7, 4}});  // this actor still waits
  for (const std::uint64_t n : {3, 5, 6}) {
    EXPECT_EQ(placed(n), NodeId{});
    report(kA, 1);
    pass(250ms, {kA});
    EXPECT_EQ(placed(n), kA) << n;
    started(n);
    report(kA, 0);
  }
  EXPECT_EQ(placed(4), NodeId{});
  EXPECT_EQ(service->waiting_actors(), 0u);
}

TEST_F(PlacingTest, WhatNoNodeCanTakeEndsTypedAfterItsTimeout) {
  join_all();
  ActorSpec s = spec(1, 64);
  spawn(s);
  say(kA, WatchActor{s.id});
  pass(59s, {kA, kB, kC});
  EXPECT_EQ(state(1), ActorState::placing);
  pass(2s, {kA, kB, kC});
  EXPECT_EQ(state(1), ActorState::dead);
  const ActorLocation seen = last<ActorLocation>(kA);
  ASSERT_NE(seen.error, nullptr);
  EXPECT_NE(Error(*seen.error).message().find("64 CPU"), std::string::npos)
      << Error(*seen.error).message();
  // A report that comes in time ends the wait.
  s = spec(2, 64);
  spawn(s);
  pass(10s, {kA, kB, kC});
  join(NodeId{0, 4}, 64);
  EXPECT_EQ(placed(2), (NodeId{0, 4}));
}

TEST_F(PlacingTest, AtOnceWhenToldSoButNotBeforeTheAnnouncedNodesHaveCome) {
  options.infeasible_timeout = Duration::zero();
  options.expected = {kA, kB};
  start();
  join(kA, 1);
  ActorSpec s = spec(1, 2);
  s.job = {};
  spawn(s);
  EXPECT_EQ(state(1), ActorState::placing);
  join(kB, 1);
  pass(250ms, {kA, kB});
  EXPECT_EQ(state(1), ActorState::dead);
  s.id = ActorId{7, 2};
  spawn(s);
  EXPECT_EQ(state(2), ActorState::dead);
}

}  // namespace
}  // namespace troupe::control::service_test
