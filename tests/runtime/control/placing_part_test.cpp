// Tests Placing alone: an actor gets a node or waits in order of arrival, what was placed is
// subtracted until it is reported, and what no node can take ends after its timeout.
#include "tests/runtime/control/directory_fixture.hpp"
#include "troupe/runtime/control/placing.hpp"

namespace troupe::control::directory_test {
namespace {

using scheduling::kUnit;

struct PlacingPartTest : DirectoryTest {
  PlacingOptions options;
  NodeTable nodes;
  std::optional<Placing> placing;

  void SetUp() override {
    DirectoryTest::SetUp();
    options.infeasible_timeout = 60s;
    placing.emplace(options, nodes, *actors, now);
  }
  void add_node(NodeId id, std::int64_t cpus, Epoch epoch = 1) {
    NodeRecord record;
    record.description.id = id;
    record.description.resources.cpus = cpus * kUnit;
    record.epoch = epoch;
    nodes.up(record);
    nodes.find(id)->report.view.most_actors = 100;
    placing->on_node(id, now);
  }
  PlaceActor wanted(std::uint64_t n, std::int64_t cpus) {
    ActorSpec s = spec(n);
    s.demand.need.cpus = cpus * kUnit;
    spawn(s);
    return got<PlaceActor>().at(0);
  }
  std::optional<Placing::Verdict> add(std::uint64_t n, std::int64_t cpus) {
    return placing->add(wanted(n, cpus), now);
  }
  /// Returns the actors that the round of this time gives a node.
  std::vector<ActorId> round() {
    std::vector<ActorId> placed;
    now += 100ms;
    if (!placing->is_due(now)) return placed;
    placing->begin_round(now);
    while (const auto verdict = placing->next(now))
      if (verdict->node) placed.push_back(verdict->actor);
    return placed;
  }
  std::int64_t free_cpus(NodeId id) const { return placing->view().find(id)->free.cpus / kUnit; }
};

TEST_F(PlacingPartTest, AnActorGetsTheNodeThatHasRoom) {
  add_node(kA, 1);
  add_node(kB, 4, 3);
  const auto verdict = add(1, 2);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->actor, actor_id(1));
  EXPECT_EQ(verdict->node, kB);
  EXPECT_EQ(verdict->epoch, 3U);
  EXPECT_TRUE(placing->waiting().empty());
}

TEST_F(PlacingPartTest, WhatWasPlacedIsSubtractedUntilAReportShowsIt) {
  add_node(kA, 4);
  const auto verdict = add(1, 3);
  ASSERT_TRUE(verdict);
  const Placing::Life life{verdict->actor, verdict->incarnation};
  EXPECT_EQ(free_cpus(kA), 1);
  placing->on_report(kA);
  placing->on_node(kA, now);
  EXPECT_EQ(free_cpus(kA), 1) << "the node has not answered the start";
  placing->end_start(kA, {verdict->actor, verdict->incarnation + 1}, false, now);
  EXPECT_EQ(free_cpus(kA), 1) << "another life";
  placing->end_start(kA, life, true, now);
  EXPECT_EQ(placing->next_tick(), now + 250ms);
  placing->on_report(kA);
  placing->on_node(kA, now);
  EXPECT_EQ(free_cpus(kA), 4);
}

TEST_F(PlacingPartTest, AnAnsweredStartWithoutAReportIsSubtractedForAMoment) {
  add_node(kA, 4);
  const auto verdict = add(1, 3);
  placing->end_start(kA, {verdict->actor, verdict->incarnation}, true, now);
  placing->on_tick(now + 249ms);
  EXPECT_EQ(free_cpus(kA), 1);
  placing->on_tick(now + 250ms);
  EXPECT_EQ(free_cpus(kA), 4);
  EXPECT_EQ(placing->next_tick(), Time::max());
}

TEST_F(PlacingPartTest, AFailedStartAndADeadNodeTakeNoRoom) {
  add_node(kA, 4);
  const auto verdict = add(1, 3);
  placing->end_start(kA, {verdict->actor, verdict->incarnation}, false, now);
  EXPECT_EQ(free_cpus(kA), 4);
  EXPECT_TRUE(add(2, 3));
  placing->forget(kA);
  placing->on_node(kA, now);
  EXPECT_EQ(free_cpus(kA), 4);
}

TEST_F(PlacingPartTest, AStartIsLostWhenAResetMayHaveTakenItAndTheNodeDoesNotListIt) {
  add_node(kA, 4);
  const auto first = add(1, 1), second = add(2, 1);
  EXPECT_TRUE(placing->end_lost_starts(kA, {}, now).empty()) << "there was no reset";
  placing->on_reset(kA);
  const Placing::Life lost{first->actor, first->incarnation};
  EXPECT_EQ(placing->end_lost_starts(kA, {{second->actor, second->incarnation}}, now),
            std::vector<Placing::Life>{lost});
  EXPECT_EQ(free_cpus(kA), 3);
}

TEST_F(PlacingPartTest, WaitingActorsAreTriedInOrderWhenTheViewChanges) {
  add_node(kA, 2);
  ASSERT_TRUE(add(1, 2));
  EXPECT_FALSE(add(2, 2));
  EXPECT_FALSE(add(3, 1)) << "it waits behind the other";
  EXPECT_TRUE(round().empty());
  EXPECT_FALSE(placing->has_room_for_waiting());
  add_node(kB, 2);
  EXPECT_TRUE(placing->has_room_for_waiting());
  EXPECT_EQ(round(), std::vector<ActorId>{actor_id(2)});
  add_node(kClient, 2);
  EXPECT_EQ(round(), std::vector<ActorId>{actor_id(3)});
  EXPECT_TRUE(placing->waiting().empty());
}

TEST_F(PlacingPartTest, AnActorThatIsDeadWaitsNoLonger) {
  add_node(kA, 1);
  ASSERT_TRUE(add(1, 1));
  EXPECT_FALSE(add(2, 1));
  run(actors->on_kill(actor_id(2), false, now));
  add_node(kB, 4);
  EXPECT_TRUE(round().empty());
  EXPECT_TRUE(placing->waiting().empty());
}

TEST_F(PlacingPartTest, WhatNoNodeCanTakeEndsAfterItsTimeout) {
  add_node(kA, 1);
  EXPECT_FALSE(add(1, 9));
  EXPECT_TRUE(round().empty());
  EXPECT_EQ(placing->waiting().size(), 1U);
  now += 60s;
  ASSERT_TRUE(placing->is_due(now));
  placing->begin_round(now);
  const auto verdict = placing->next(now);
  ASSERT_TRUE(verdict);
  EXPECT_FALSE(verdict->node);
  EXPECT_FALSE(verdict->why.empty());
  EXPECT_FALSE(placing->next(now));
}

TEST_F(PlacingPartTest, NothingIsInfeasibleBeforeTheExpectedNodesHaveCome) {
  options.infeasible_timeout = 0s;
  options.expected = {kB};
  placing.emplace(options, nodes, *actors, now);
  add_node(kA, 1);
  EXPECT_FALSE(add(1, 9));
  placing->no_longer_expected(kB);
  const auto verdict = placing->add(got<PlaceActor>().at(0), now);
  EXPECT_FALSE(verdict) << "it waits behind the first";
  now += 1s;
  placing->on_node(kA, now);
  placing->begin_round(now);
  EXPECT_FALSE(placing->next(now)->node);
}

}  // namespace
}  // namespace troupe::control::directory_test
