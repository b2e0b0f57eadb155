// Tests the actor directory. Names are atomic, restarts stop at their limit, and no incarnation
// is used twice. Actors end when their lifetime does. A restart of control loses no detached
// actor and no name.
#include "tests/runtime/control/directory_fixture.hpp"

#include <algorithm>

namespace troupe::control::directory_test {
namespace {

TEST_F(DirectoryTest, AnActorIsPlacedStartedAndSeenByWatchers) {
  const ActorReply reply = spawn(spec(1));
  EXPECT_TRUE(reply.created);
  EXPECT_EQ(got<PlaceActor>().size(), 1u);
  run(actors->on_watch(actor_id(1), kB, now));
  EXPECT_EQ(got<ActorUpdateTo>().at(0).location.state, ActorState::placing);
  bring_up(1);
  const auto updates = got<ActorUpdateTo>();
  ASSERT_EQ(updates.size(), 1u);
  EXPECT_EQ(updates[0].watcher, kB);
  EXPECT_EQ(updates[0].location.node, kA);
  EXPECT_EQ(updates[0].location.worker, ProcessIndex{42});
}

TEST_F(DirectoryTest, RepeatedRequestsChangeNothing) {
  spawn(spec(1, "x"));
  const auto incarnation = actors->find(actor_id(1))->incarnation;
  EXPECT_TRUE(spawn(spec(1, "x")).created);
  EXPECT_TRUE(got<PlaceActor>().empty());
  EXPECT_EQ(actors->find(actor_id(1))->incarnation, incarnation);
}

TEST_F(DirectoryTest, NamesAreTakenOnceAndFreeAfterDeath) {
  EXPECT_TRUE(spawn(spec(1, "best")).created);
  const ActorReply second = spawn(spec(2, "best"));
  ASSERT_NE(second.error, nullptr);
  EXPECT_EQ(second.error->code, Code::invalid_argument);
  const ActorReply found = spawn(spec(3, "best"), true);
  EXPECT_FALSE(found.created);
  EXPECT_EQ(found.actor, actor_id(1));
  EXPECT_EQ(found.class_name, "Counter");
  run(actors->on_find(kClient, 8, "default", "best"));
  EXPECT_EQ(got<ActorReply>().at(0).actor, actor_id(1));
  run(actors->on_find(kClient, 8, "other", "best"));
  EXPECT_FALSE(got<ActorReply>().at(0).actor);
  run(actors->on_kill(actor_id(1), false, now));
  EXPECT_TRUE(spawn(spec(4, "best"), true).created);
}

TEST_F(DirectoryTest, RestartsStopAtTheLimitAndTheErrorCarriesTheCause) {
  spawn(spec(1, "", 2));
  std::vector<std::uint64_t> lives{bring_up(1)};
  for (int i = 0; i < 2; ++i) {
    die(1);
    EXPECT_EQ(state(1), ActorState::restarting);
    lives.push_back(bring_up(1, i == 0 ? kB : kA));
  }
  run(actors->on_watch(actor_id(1), kB, now));
  die(1);
  EXPECT_EQ(state(1), ActorState::dead);
  EXPECT_TRUE(std::is_sorted(lives.begin(), lives.end()));
  EXPECT_EQ(std::adjacent_find(lives.begin(), lives.end()), lives.end());
  const auto update = got<ActorUpdateTo>().at(0).location;
  const Error error{*update.error};
  EXPECT_EQ(error.code(), Code::actor_died);
  EXPECT_NE(std::string(error.what()).find("it had used its 2 restarts"), std::string::npos);
  ASSERT_NE(error.cause(), nullptr);
  EXPECT_EQ(error.cause()->message(), "killed by signal 9");
}

TEST_F(DirectoryTest, OnlyRestartsWithinTheWindowCount) {
  ActorSpec s = spec(1, "", 1);
  s.restart_window = 60s;
  spawn(s);
  for (int i = 0; i < 5; ++i) {
    bring_up(1);
    now += 61s;
    die(1);
    ASSERT_EQ(state(1), ActorState::restarting);
  }
  bring_up(1);
  now += 1s;
  die(1);
  EXPECT_EQ(state(1), ActorState::dead);
}

TEST_F(DirectoryTest, WhatWaitsForItsRestartIsKnownToAndHearsNothingOfItsLifeBefore) {
  spawn(spec(1, "", -1));
  run(actors->on_watch(actor_id(1), kB, now));
  bring_up(1);
  die(1);  // the first restart comes at once
  const auto second = bring_up(1);
  die(1);
  const auto told = got<ActorUpdateTo>();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].location.state, ActorState::restarting);
  EXPECT_EQ(told[0].location.node, NodeId{});
  EXPECT_GT(told[0].location.incarnation, second);
  const auto due = actors->next_deadline();
  ASSERT_TRUE(due);
  run(actors->on_died(actor_id(1), second, Error(Code::worker_died, "once more"), false, now));
  run(actors->on_node_dead(kA, 1, "it was silent", now));
  EXPECT_EQ(actors->next_deadline(), due);
  EXPECT_TRUE(got<PlaceActor>().empty());
  now = *due;
  run(actors->on_tick(now));
  EXPECT_EQ(got<PlaceActor>().size(), 1u);
  EXPECT_FALSE(actors->next_deadline());
}

TEST_F(DirectoryTest, ANodesDeathRestartsWhatLivedThereOnce) {
  for (int n = 1; n <= 3; ++n) spawn(spec(static_cast<std::uint64_t>(n), "", 1));
  bring_up(1);
  bring_up(2, kB);
  run(actors->on_placed(actor_id(3), actors->find(actor_id(3))->incarnation, kA, 1));
  run(actors->on_node_dead(kA, 1, "it was silent for 10 s", now));
  EXPECT_EQ(state(1), ActorState::restarting);
  EXPECT_EQ(state(2), ActorState::alive);
  EXPECT_EQ(state(3), ActorState::placing);  // it was never alive, so no restart is used up
  EXPECT_EQ(got<PlaceActor>().size(), 2u);
  bring_up(3, kB);
  die(3);
  EXPECT_EQ(state(3), ActorState::restarting);
  run(actors->on_node_dead(kA, 1, "again", now));  // nothing is left on kA
  EXPECT_TRUE(got<PlaceActor>().empty());
}

TEST_F(DirectoryTest, StaleNewsIsIgnoredAndStaleLivesAreStopped) {
  spawn(spec(1, "", 5));
  const auto first = bring_up(1);
  run(actors->on_node_dead(kA, 1, "gone", now));
  const auto second = bring_up(1, kB, 4);
  run(actors->on_died(actor_id(1), first, Error(Code::worker_died, "old"), false, now));
  EXPECT_EQ(state(1), ActorState::alive);
  run(actors->on_started(actor_id(1), first, kA, 1, 3, now));  // late, from the old agent
  const auto stops = got<StopActorAt>();
  ASSERT_EQ(stops.size(), 1u);
  EXPECT_EQ(stops[0].node, kA);
  EXPECT_EQ(actors->find(actor_id(1))->incarnation, second);
}

TEST_F(DirectoryTest, AConstructorThatThrowsIsFinalARefusedWorkerIsNot) {
  spawn(spec(1, "", 5));
  auto life = actors->find(actor_id(1))->incarnation;
  run(actors->on_placed(actor_id(1), life, kA, 1));
  run(actors->on_start_failed(actor_id(1), life, std::nullopt));
  EXPECT_EQ(got<PlaceActor>().size(), 1u);
  life = actors->find(actor_id(1))->incarnation;
  run(actors->on_placed(actor_id(1), life, kB, 1));
  run(actors->on_start_failed(actor_id(1), life, Error(Code::task_failed, "bad argument")));
  EXPECT_EQ(state(1), ActorState::dead);
  EXPECT_NE(actors->find(actor_id(1))->error->message.find("its constructor threw: bad argument"),
            std::string::npos);
  spawn(spec(3));
  life = actors->find(actor_id(3))->incarnation;
  run(actors->on_placed(actor_id(3), life, kB, 1));
  run(actors->on_start_failed(actor_id(3), life, Error(Code::unavailable, "no program")));
  EXPECT_NE(actors->find(actor_id(3))->error->message.find("it could not be made: no program"),
            std::string::npos);
  spawn(spec(2));
  run(actors->on_unplaceable(actor_id(2), actors->find(actor_id(2))->incarnation,
                             Error(Code::infeasible, "needs 2 GPU, no node has more than 1")));
  EXPECT_EQ(actors->find(actor_id(2))->error->cause->code, Code::infeasible);
}

TEST_F(DirectoryTest, LifetimesEndWithHandlesJobsAndKills) {
  ActorSpec kept = spec(3);
  kept.detached = true;
  spawn(spec(1));
  spawn(spec(2));
  spawn(kept);
  for (std::uint64_t n = 1; n <= 3; ++n) bring_up(n);
  run(actors->on_handles_gone(actor_id(1)));
  EXPECT_EQ(state(1), ActorState::dead);
  EXPECT_EQ(got<StopActorAt>().size(), 1u);
  run(actors->on_handles_gone(actor_id(3)));
  EXPECT_EQ(state(3), ActorState::alive);
  run(actors->on_job_ended(JobId{0, 1}));
  EXPECT_EQ(state(2), ActorState::dead);
  EXPECT_EQ(state(3), ActorState::alive);
  run(actors->on_kill(actor_id(3), true, now));
  EXPECT_EQ(got<StopActorAt>().size(), 1u);
  EXPECT_EQ(state(3), ActorState::alive);  // its agent will report the death
  run(actors->on_kill(actor_id(3), false, now));
  EXPECT_EQ(state(3), ActorState::dead);
}

TEST_F(DirectoryTest, AKillOfALifeEndsNoLaterOne) {
  spawn(spec(1, "", 5));
  const auto waits = actors->find(actor_id(1))->incarnation;
  run(actors->on_watch(actor_id(1), kB, now));
  run(actors->on_kill(actor_id(1), true, now, waits));  // no node has been chosen for it yet
  ASSERT_EQ(got<ActorUpdateTo>().size(), 1u) << "who waits for its end hears of the next";
  EXPECT_GT(got<ActorUpdateTo>()[0].location.incarnation, waits);
  const auto first = bring_up(1);
  run(actors->on_kill(actor_id(1), true, now, waits));
  EXPECT_TRUE(events.empty());
  run(actors->on_kill(actor_id(1), true, now, first));
  ASSERT_EQ(got<StopActorAt>().size(), 1u);
  EXPECT_FALSE(got<StopActorAt>()[0].for_good);
  die(1);
  bring_up(1);
  run(actors->on_kill(actor_id(1), true, now, first));  // sent again
  EXPECT_TRUE(events.empty());
}

TEST_F(DirectoryTest, AKillOfALifeWaitsForTheNodeThatHasIt) {
  ActorSpec kept = spec(1, "kept", 5), plain = spec(2, "", 5);
  kept.detached = true;
  spawn(kept);
  const auto life = bring_up(1);
  spawn(plain);
  const auto other = bring_up(2);
  restart({{kA, 1}});
  run(actors->on_kill(actor_id(1), true, now, life));
  run(actors->on_kill(actor_id(2), true, now, other));
  EXPECT_TRUE(events.empty());
  run(actors->on_node_hosts({kA, 1, store->epoch(), {{kept, life, 42, 0}, {plain, other, 43, 0}}},
                            now));
  ASSERT_EQ(got<StopActorAt>().size(), 2u);
  EXPECT_EQ(got<StopActorAt>()[0].incarnation, life);
  EXPECT_EQ(got<StopActorAt>()[1].incarnation, other);
  EXPECT_FALSE(got<StopActorAt>()[0].for_good);
}

TEST_F(DirectoryTest, LivesThatAreBeingMadeWhenControlComesBackBegin) {
  const ActorSpec being_made = spec(1), made = spec(2);
  restart({{kA, 1}});
  const std::uint64_t life = (std::uint64_t{1} << 32) + 3;
  run(actors->on_started(actor_id(2), life + 1, kA, 1, 43,
                         now));  // sent before NodeHosts
  EXPECT_TRUE(got<StopActorAt>().empty()) << "the node has not spoken yet";
  run(actors->on_node_hosts(
      {kA, 1, store->epoch(), {{being_made, life, 0, 0}, {made, life + 1, 43, 0}}}, now));
  EXPECT_EQ(state(1), ActorState::placing);
  EXPECT_EQ(state(2), ActorState::alive);
  run(actors->on_started(actor_id(1), life, kA, 1, 42, now));
  EXPECT_TRUE(got<StopActorAt>().empty());
  EXPECT_EQ(state(1), ActorState::alive);
}

TEST_F(DirectoryTest, ARestartOfControlFindsDetachedActorsWhereTheyAre) {
  ActorSpec kept = spec(1, "kept");
  kept.detached = true;
  kept.demand.need.custom = {{"license", 5000}};
  kept.demand.labels = {{"zone", "a"}};
  spawn(kept);
  const auto life = bring_up(1);
  ActorSpec ordinary = spec(2, "plain", 3);
  spawn(ordinary);
  const auto life2 = bring_up(2, kB);

  restart({{kA, 1}, {kB, 1}});
  run(actors->on_watch(actor_id(2), kClient, now));  // unknown until its node has registered
  EXPECT_EQ(got<ActorUpdateTo>().at(0).location.state, ActorState::pending);
  EXPECT_FALSE(spawn(spec(8, "kept"), true).created);  // the names are as they were
  EXPECT_TRUE(got<PlaceActor>().empty());
  run(actors->on_spawn({kClient, 6, spec(8, "plain"), true}, now));
  EXPECT_TRUE(events.empty()) << "what the holder is, only its node can tell";
  run(actors->on_find(kClient, 7, "default", "plain"));
  EXPECT_TRUE(events.empty());
  run(actors->on_node_hosts({kA, 1, store->epoch() - 1, {}}, now));  // sent to the last control
  EXPECT_EQ(state(1), ActorState::pending);
  run(actors->on_node_hosts({kA, 1, store->epoch(), {{kept, life, 42, 0}}}, now));
  EXPECT_EQ(state(1), ActorState::alive);
  EXPECT_TRUE(got<PlaceActor>().empty());
  run(actors->on_node_hosts({kB, 1, store->epoch(), {{ordinary, life2, 43, 1}}}, now));
  EXPECT_EQ(got<ActorUpdateTo>().at(0).location.state, ActorState::alive);
  ASSERT_EQ(got<ActorReply>().size(), 2u);
  for (const ActorReply& reply : got<ActorReply>()) {
    EXPECT_EQ(reply.actor, actor_id(2));
    EXPECT_EQ(reply.class_name, "Counter");
    EXPECT_FALSE(reply.created);
  }
  die(2);
  EXPECT_GT(actors->find(actor_id(2))->incarnation, life2);
}

TEST_F(DirectoryTest, ALifeThatEndedAboutWhenControlDidIsFollowedByAnother) {
  const ActorSpec plain = spec(1, "", 2);
  spawn(plain);
  const auto life = bring_up(1);
  const Error why(Code::worker_died, "killed by signal 9");
  restart({{kA, 1}, {kB, 1}});
  run(actors->on_watch(actor_id(1), kClient, now));
  run(actors->on_node_hosts({kA, 1, store->epoch(), {{plain, life, 42, 1, true}}}, now));
  EXPECT_EQ(got<ActorUpdateTo>().at(0).location.state, ActorState::restarting) << "it is not alive";
  for (int said = 0; said < 2; ++said) {
    run(actors->on_died(actor_id(1), life, why, false, now));
    EXPECT_TRUE(events.empty()) << "the next life may be at a node that has not spoken";
  }
  now += 10s;  // unknown actors are kept for a much shorter time
  run(actors->on_tick(now));
  EXPECT_TRUE(events.empty());
  run(actors->on_node_hosts({kB, 1, store->epoch(), {}}, now));
  ASSERT_EQ(got<PlaceActor>().size(), 1u);
  EXPECT_GT(got<PlaceActor>()[0].incarnation, life);
  EXPECT_EQ(actors->restarts(actor_id(1)), 2u) << "one as before, and this one once";
  bring_up(1, kB);
  EXPECT_TRUE(got<ActorUpdateTo>().at(0).location.node == kB);
  die(1);
  EXPECT_EQ(state(1), ActorState::dead) << "it had two restarts";
}

TEST_F(DirectoryTest, ALaterLifeThanOneThatEndedIsLeftAlone) {
  const ActorSpec plain = spec(1, "", 3);
  spawn(plain);
  const auto first = bring_up(1);
  die(1);
  const auto second = bring_up(1, kB);
  restart({{kA, 1}, {kB, 1}});
  run(actors->on_node_hosts({kA, 1, store->epoch(), {{plain, first, 42, 0, true}}}, now));
  run(actors->on_died(actor_id(1), first, Error(Code::worker_died, "killed"), false, now));
  run(actors->on_node_hosts({kB, 1, store->epoch(), {{plain, second, 43, 1}}}, now));
  EXPECT_TRUE(got<StopActorAt>().empty());
  EXPECT_TRUE(got<PlaceActor>().empty());
  EXPECT_EQ(state(1), ActorState::alive);
  EXPECT_EQ(actors->find(actor_id(1))->incarnation, second);
  EXPECT_EQ(actors->restarts(actor_id(1)), 1u);
  run(actors->on_died(actor_id(1), first, Error(Code::worker_died, "killed"), false, now));
  EXPECT_TRUE(events.empty()) << "that was an earlier one";
}

TEST_F(DirectoryTest, ALifeThatEndedIsJudgedWhenEverybodyHasSpoken) {
  const ActorSpec one = spec(1, "", 1), two = spec(2, "", 1);
  spawn(one);
  spawn(two);
  const auto life = bring_up(1), other = bring_up(2);
  restart({{kA, 1}, {kB, 1}});
  const Error why(Code::worker_died, "killed by signal 9");
  run(actors->on_node_hosts(
      {kA, 1, store->epoch(), {{one, life, 42, 1, true}, {two, other, 43, 1, true}}}, now));
  for (const auto& [n, ended] : {std::pair(1, life), std::pair(2, other)}) {
    run(actors->on_died(actor_id(static_cast<std::uint64_t>(n)), ended, why, false, now));
    EXPECT_TRUE(events.empty()) << "a restart that was long ago may be dated as now";
  }
  run(actors->on_node_hosts({kB, 1, store->epoch(), {{one, life + 9, 44, 1}}}, now));
  EXPECT_EQ(state(1), ActorState::alive) << "the next life had begun";
  EXPECT_TRUE(got<StopActorAt>().empty());
  EXPECT_EQ(state(2), ActorState::dead) << "there was no other: it had used its one restart";
  EXPECT_NE(actors->find(actor_id(2))->error->message.find("signal 9"), std::string::npos);
}

TEST_F(DirectoryTest, WhoWaitsWithASpawnIsAnsweredWhenItsJobEnds) {
  ActorSpec kept = spec(3);
  kept.detached = true;
  ActorSpec of_another_job = spec(2);
  of_another_job.job = JobId{0, 2};
  restart({{kA, 1}});
  run(actors->on_spawn({kClient, 5, spec(1), false, true}, now));
  run(actors->on_spawn({kClient, 6, kept, false, true}, now));
  run(actors->on_spawn({kClient, 7, of_another_job, false, true}, now));
  EXPECT_TRUE(events.empty());
  run(actors->on_job_ended(JobId{0, 1}));
  ASSERT_EQ(got<ActorReply>().size(), 1u);
  EXPECT_EQ(got<ActorReply>()[0].to, kClient);
  EXPECT_EQ(got<ActorReply>()[0].request, 5u);
  EXPECT_EQ(got<ActorReply>()[0].error->code, Code::cancelled);
  run(actors->on_node_hosts({kA, 1, store->epoch(), {}}, now));
  ASSERT_EQ(got<PlaceActor>().size(), 2u);
  EXPECT_EQ(got<PlaceActor>()[0].actor, kept.id);
  EXPECT_EQ(got<PlaceActor>()[1].actor, of_another_job.id);
}

TEST_F(DirectoryTest, WhatADeadNodeAskedForIsNotMade) {
  ActorSpec kept = spec(3);
  kept.detached = true;
  spawn(spec(4, "name"));
  restart({{kA, 1}, {kB, 1}});
  run(actors->on_spawn({kA, 5, spec(1), false, true}, now));
  run(actors->on_spawn({kA, 6, kept, false, true}, now));
  run(actors->on_spawn({kB, 5, spec(2), false, true}, now));
  run(actors->on_find(kA, 7, "default", "name"));
  EXPECT_TRUE(events.empty());
  run(actors->on_node_dead(kA, 1, "silent", now));
  run(actors->on_node_hosts({kB, 1, store->epoch(), {}}, now));
  std::vector<ActorId> placed;
  for (const PlaceActor& event : got<PlaceActor>()) placed.push_back(event.actor);
  std::sort(placed.begin(), placed.end());
  EXPECT_EQ(placed, (std::vector<ActorId>{actor_id(2), kept.id}));
  for (const ActorReply& reply : got<ActorReply>()) EXPECT_NE(reply.request, 7u);
}

TEST_F(DirectoryTest, AnEarlierLifeOfALivingActorIsNotStoppedForGood) {
  const ActorSpec plain = spec(1, "", 3);
  spawn(plain);
  const auto first = bring_up(1);
  run(actors->on_node_dead(kA, 1, "silent", now));
  const auto second = bring_up(1, kB);
  const auto stopped_for_good = [&] {
    EXPECT_EQ(got<StopActorAt>().size(), 1u);
    return got<StopActorAt>().at(0).for_good;
  };
  // This stop must not be for good: if control is restarted, the end of the old life would
  // otherwise end the actor.
  run(actors->on_started(actor_id(1), first, kA, 2, 42, now));
  EXPECT_FALSE(stopped_for_good());
  run(actors->on_node_hosts({kA, 2, store->epoch(), {{plain, first, 42, 0}}}, now));
  EXPECT_FALSE(stopped_for_good());
  run(actors->on_node_hosts({kA, 2, store->epoch(), {{plain, second + 9, 42, 0}}}, now));
  EXPECT_FALSE(stopped_for_good());  // about the life at kB
  run(actors->on_kill(actor_id(1), false, now));
  EXPECT_TRUE(stopped_for_good());
  run(actors->on_started(actor_id(1), second, kB, 1, 42, now));
  EXPECT_TRUE(stopped_for_good());
}

TEST_F(DirectoryTest, AKillIsForgottenWhenItsNodeSpeaksWithoutTheActor) {
  const ActorSpec one = spec(1, "", 5);
  spawn(one);
  const auto life = bring_up(1, kA, 2);
  run(actors->on_kill(one.id, false, now));
  actors->on_registered(kClient, 0);
  hosts(kClient, 1);
  hosts(kB, 1);
  hosts(kA, 3);  // from a new process in the place of the one on which the actor was
  EXPECT_EQ(remembered(), 1u);
  hosts(kA, 2, {{one, life, 42, 0, true}});  // it reports the end again, until control knows of it
  EXPECT_EQ(remembered(), 1u);
  hosts(kA, 2, {{one, life, 42, 0, true}});
  EXPECT_EQ(remembered(), 1u);
  hosts(kA, 2);
  EXPECT_EQ(remembered(), 0u);
  spawn(spec(2));
  bring_up(2, kA, 2);
  run(actors->on_kill(actor_id(2), false, now));
  actors->on_registered(kClient, 0);
  hosts(kClient, 1);
  EXPECT_EQ(remembered(), 1u);
  hosts(kA, 2);
  EXPECT_EQ(remembered(), 0u);
}

// A kill must be kept while the StartActorAt is on its way to a node that registers without the
// actor.
TEST_F(DirectoryTest, AKillIsKeptWhileTheStartIsOnItsWayToANodeThatSpeaksWithoutTheActor) {
  for (const bool arrives : {true, false}) {
    spawn(spec(arrives ? 1 : 2, "", 5));
    const ActorId id = actor_id(arrives ? 1 : 2);
    const auto life = actors->find(id)->incarnation;
    run(actors->on_placed(id, life, kA, 1));
    run(actors->on_kill(id, false, now));
    actors->on_registered(kClient, 0);
    hosts(kClient, 1);
    hosts(kA, 1);  // sent before the StartActorAt arrived
    EXPECT_EQ(remembered(), 1u);
    if (arrives) {
      run(actors->on_start_failed(id, life, std::nullopt));
    } else {
      actors->on_reset(kA);
      EXPECT_EQ(remembered(), 1u);
      hosts(kA, 1);
    }
    EXPECT_EQ(remembered(), 0u);
  }
}

TEST_F(DirectoryTest, ADetachedActorThatADeadNodeAskedForIsForgottenWhenItEnds) {
  ActorSpec kept = spec(3, "kept");
  kept.detached = true;
  restart({{kA, 1}, {kB, 1}});
  run(actors->on_spawn({kA, 6, kept, false, true}, now));
  run(actors->on_node_dead(kA, 1, "silent", now));
  hosts(kB, 1);
  EXPECT_TRUE(got<ActorReply>().empty()) << "nobody waits for it";
  const auto life = bring_up(3, kB);
  run(actors->on_kill(kept.id, false, now));
  EXPECT_EQ(remembered(), 1u);
  run(actors->on_died(kept.id, life, Error(Code::worker_died, "killed"), true, now));
  EXPECT_EQ(remembered(), 0u);
}

TEST_F(DirectoryTest, AKillOfALifeIsNotLostOnTheEndOfAnEarlierOne) {
  const Error why(Code::worker_died, "killed");
  for (const std::uint64_t n : {1, 2}) {
    const ActorSpec plain = spec(n, "", 5);
    spawn(plain);
    const auto first = bring_up(n);
    die(n);
    const auto second = bring_up(n, kB);
    restart({{kA, 1}, {kB, 1}});
    const auto kill = [&] { run(actors->on_kill(plain.id, true, now, second)); };
    if (n == 1) kill();
    hosts(kA, 1, {{plain, first, 42, 0, true}});
    if (n == 2) kill();
    run(actors->on_died(plain.id, first, why, false, now));
    hosts(kB, 1, {{plain, second, 42, 0}});
    ASSERT_EQ(got<StopActorAt>().size(), 1u) << n;
    EXPECT_EQ(got<StopActorAt>()[0].incarnation, second);
    EXPECT_FALSE(got<StopActorAt>()[0].for_good);
    restart({});
  }
}

TEST_F(DirectoryTest, AKilledActorIsTakenInByNoLaterControlUntilItHasEnded) {
  for (const bool detached : {true, false}) {
    ActorSpec kept = spec(detached ? 1 : 2, detached ? "best" : "", 5);
    kept.detached = detached;
    const auto kill_and_restart = [&] {
      spawn(kept);
      const auto life = bring_up(kept.id.low);
      run(actors->on_kill(kept.id, false, now));
      EXPECT_EQ(got<StopActorAt>().size(), 1u);  // lost with this control
      restart({{kA, 1}});
      return life;
    };
    const auto life = kill_and_restart();
    for (int controls = 0; controls < 2; ++controls, restart({{kA, 1}})) {
      run(actors->on_watch(kept.id, kB, now));
      run(actors->on_node_hosts({kA, 1, store->epoch(), {{kept, life, 42, 0}}}, now));
      ASSERT_EQ(got<StopActorAt>().size(), 1u);
      EXPECT_TRUE(got<StopActorAt>().at(0).for_good);
      ASSERT_EQ(got<ActorUpdateTo>().size(), 1u) << "who asked before is told";
      EXPECT_EQ(state(kept.id.low), ActorState::dead);
      EXPECT_EQ(remembered(), 1u);
    }
    run(actors->on_node_hosts({kA, 1, store->epoch(), {{kept, life, 42, 0}}}, now));
    run(actors->on_died(kept.id, life, Error(Code::worker_died, "killed"), true, now));
    EXPECT_EQ(remembered(), 0u) << "it has ended";
    restart({});
    kill_and_restart();
    run(actors->on_node_hosts({kA, 1, store->epoch(), {}}, now));
    EXPECT_EQ(remembered(), 0u) << "its node is without it";
    kill_and_restart();
    run(actors->on_node_dead(kA, 1, "silent", now));
    EXPECT_EQ(remembered(), 0u) << "its node is dead";
    EXPECT_FALSE(actors->find(kept.id).has_value());
  }
}

TEST_F(DirectoryTest, AnActorThatNobodyHoldsEndsGracefullyAlsoWhenControlDiesMeanwhile) {
  ActorSpec plain = spec(1, "plain", 5);
  spawn(plain);
  const auto life = bring_up(1);
  run(actors->on_handles_gone(plain.id));
  EXPECT_EQ(got<StopActorAt>().size(), 1u);  // lost with this control, but its end was announced
  const Error killed(Code::worker_died, "killed");
  for (int controls = 0; controls < 2; ++controls) {
    restart({{kA, 1}});
    run(actors->on_node_hosts({kA, 1, store->epoch(), {{plain, life, 42, 0}}}, now));
    ASSERT_EQ(got<StopActorAt>().size(), 1u);
    EXPECT_TRUE(got<StopActorAt>().at(0).graceful) << "it may finish what it was asked";
    EXPECT_TRUE(got<StopActorAt>().at(0).for_good);
    EXPECT_EQ(state(1), ActorState::dead);
  }
  run(actors->on_died(plain.id, life, killed, true, now));
  std::size_t kept = 0;
  EXPECT_TRUE(store->scan("killed/", [&](auto, auto) { ++kept; }).ok());
  EXPECT_EQ(kept, 0u) << "it has ended";
}

TEST_F(DirectoryTest, WhatAnEarlierLifeOfAKilledActorSaysLetsNoLaterOneLive) {
  const ActorSpec plain = spec(1, "", 5);
  spawn(plain);
  const auto first = bring_up(1);
  run(actors->on_node_dead(kA, 1, "silent", now));
  const auto second = bring_up(1, kB);
  run(actors->on_kill(actor_id(1), false, now));
  const Error killed(Code::worker_died, "killed");
  const auto is_stopped_at_b = [&] {
    run(actors->on_node_hosts({kB, 1, store->epoch(), {{plain, second, 42, 0}}}, now));
    return got<StopActorAt>().size() == 1 && state(1) == ActorState::dead;
  };
  restart({{kA, 2}, {kB, 1}});
  run(actors->on_node_hosts({kA, 2, store->epoch(), {{plain, first, 42, 0, true}}}, now));
  run(actors->on_died(actor_id(1), first, killed, true, now));
  run(actors->on_node_dead(kA, 2, "silent", now));
  EXPECT_TRUE(is_stopped_at_b());
  restart({{kB, 1}});
  EXPECT_TRUE(is_stopped_at_b());
  // The actor died by itself before it was stopped. Its node reports that again to the next
  // control.
  run(actors->on_died(actor_id(1), second, killed, false, now));
  restart({{kB, 1}});
  run(actors->on_node_hosts({kB, 1, store->epoch(), {{plain, second, 42, 0, true}}}, now));
  run(actors->on_died(actor_id(1), second, killed, false, now));
  EXPECT_TRUE(got<PlaceActor>().empty());
  EXPECT_EQ(state(1), ActorState::dead);
}

TEST_F(DirectoryTest, ADeadActorIsNotMadeAnewByAControlThatHearsOfAnEarlierLifesEnd) {
  const ActorSpec plain = spec(1, "", 5);
  const Error killed(Code::worker_died, "killed");
  const auto second_life = [&] {
    spawn(plain);
    const auto first = bring_up(1);
    die(1);
    bring_up(1, kB);
    return first;
  };
  // kA learns neither of the second life nor of its end: others were told of both.
  const auto nothing_follows = [&](std::uint64_t first) {
    EXPECT_EQ(remembered(), 1u);
    for (int controls = 0; controls < 2; ++controls) {
      restart({{kA, 1}, {kB, 1}});
      run(actors->on_node_hosts({kB, 1, store->epoch(), {}}, now));
      run(actors->on_node_hosts({kA, 1, store->epoch(), {{plain, first, 42, 0, true}}}, now));
      run(actors->on_died(actor_id(1), first, killed, false, now));
      EXPECT_TRUE(got<PlaceActor>().empty());
      EXPECT_EQ(state(1), ActorState::dead);
      EXPECT_EQ(remembered(), 1u);
    }
    run(actors->on_watch(actor_id(1), kA, now));
    EXPECT_EQ(got<ActorUpdateTo>().at(0).location.state, ActorState::dead);
    run(actors->on_unwatch(actor_id(1), kA));
    EXPECT_EQ(remembered(), 0u) << "nobody tells of it any more";
    restart({});
  };
  const auto end = [&](bool intended) {
    const auto life = actors->find(actor_id(1))->incarnation;
    run(actors->on_died(actor_id(1), life, killed, intended, now));
  };
  auto first = second_life();
  run(actors->on_kill(actor_id(1), false, now));
  end(true);
  nothing_follows(first);

  first = second_life();
  end(true);  // it has exited by itself
  nothing_follows(first);

  first = second_life();
  run(actors->on_node_dead(kB, 1, "silent", now));
  run(actors->on_kill(actor_id(1), false, now));  // the kill comes while the actor lives nowhere
  nothing_follows(first);

  second_life();
  run(actors->on_node_dead(kA, 1, "silent", now));
  run(actors->on_node_dead(kClient, 1, "silent", now));
  end(true);
  EXPECT_EQ(remembered(), 0u) << "who might tell of it is dead";
  restart({});
  second_life();
  run(actors->on_node_hosts({kA, 1, store->epoch(), {}}, now));
  end(true);
  run(actors->on_unwatch(actor_id(1), kClient));
  EXPECT_EQ(remembered(), 0u) << "who might tell of it has heard what followed";
}

TEST_F(DirectoryTest, ARequestOfAnEarlierControlsTimeBeginsNoSecondLife) {
  const ActorSpec plain = spec(1), never = spec(2);
  spawn(plain);  // the answer was lost with control
  const auto life = bring_up(1, kB);
  restart({{kA, 1}, {kB, 1}});
  run(actors->on_spawn({kClient, 5, plain, false, true}, now));
  EXPECT_TRUE(events.empty());
  run(actors->on_spawn({kClient, 6, never, false, true}, now));
  run(actors->on_spawn({kClient, 7, spec(3), false, false}, now));
  EXPECT_EQ(got<PlaceActor>().size(), 1u) << "what is new waits for nobody";
  run(actors->on_node_hosts({kA, 1, store->epoch(), {}}, now));
  EXPECT_TRUE(events.empty());
  run(actors->on_node_hosts({kB, 1, store->epoch(), {{plain, life, 42, 0}}}, now));
  EXPECT_EQ(got<ActorReply>().size(), 2u);
  EXPECT_TRUE(got<ActorReply>().at(0).created);
  EXPECT_TRUE(got<StopActorAt>().empty());
  EXPECT_EQ(actors->find(actor_id(1))->incarnation, life);
  ASSERT_EQ(got<PlaceActor>().size(), 1u);
  EXPECT_EQ(got<PlaceActor>()[0].actor, actor_id(2)) << "of this one nobody has a life";
}

// The actor dies before the node of its maker has registered with the new control. It must not be
// made anew.
TEST_F(DirectoryTest, AnActorThatDiesBeforeItsMakerHasSpokenIsNotMadeAnew) {
  const ActorSpec plain = spec(1);
  const auto dies = [&] {
    spawn(plain);  // no answer reaches kClient
    const auto life = bring_up(1, kB);
    restart({{kB, 1}, {kClient, 1}});
    run(actors->on_node_hosts({kB, 1, store->epoch(), {{plain, life, 42, 0}}}, now));
    run(actors->on_died(actor_id(1), life, Error(Code::worker_died, "killed"), false, now));
    EXPECT_EQ(state(1), ActorState::dead);
    EXPECT_EQ(remembered(), 1u);
  };
  dies();
  restart({{kB, 1}, {kClient, 1}});
  run(actors->on_spawn({kClient, 5, plain, false, true}, now));
  run(actors->on_node_hosts({kClient, 1, store->epoch(), {}}, now));
  run(actors->on_node_dead(kB, 1, "silent", now));
  EXPECT_TRUE(got<PlaceActor>().empty());
  EXPECT_EQ(state(1), ActorState::dead);
  run(actors->on_unwatch(actor_id(1), kClient));
  EXPECT_EQ(remembered(), 0u);
  restart({});
  dies();
  run(actors->on_node_hosts({kClient, 1, store->epoch(), {}}, now));
  EXPECT_EQ(remembered(), 0u) << "nobody asks for it any more";
}

TEST_F(DirectoryTest, ARequestForAnActorThatIsDeadBeforeItsMakerHeardOfItMakesNoOther) {
  const ActorSpec plain = spec(1, "n");
  const Error killed(Code::worker_died, "killed");
  const auto live = [&] {
    restart({});
    spawn(plain);  // no answer reaches kClient
    return bring_up(1, kB);
  };
  const auto dead_by_itself = [&](bool intended) {
    const auto life = live();
    run(actors->on_died(actor_id(1), life, killed, intended, now));
    run(actors->on_unwatch(actor_id(1), kB));  // kB has read the update
    EXPECT_EQ(remembered(), 1u);
  };
  const auto no_other_is_made = [&] {
    for (int controls = 0; controls < 2; ++controls) {
      restart({{kB, 1}, {kClient, 1}});
      EXPECT_TRUE(spawn(spec(2, "n")).created) << "its name is another's";
      run(actors->on_kill(actor_id(2), false, now));
      run(actors->on_unwatch(actor_id(2), kClient));
      actors->on_registered(kClient, 0);
      run(actors->on_spawn({kClient, 5, plain, false, true}, now));
      ASSERT_EQ(got<ActorReply>().size(), 1u) << "it waits for nobody";
      EXPECT_TRUE(got<ActorReply>()[0].created);
      EXPECT_TRUE(got<PlaceActor>().empty());
      for (const NodeId node : {kB, kClient}) {
        run(actors->on_node_hosts({node, 1, store->epoch(), {}}, now));
        EXPECT_TRUE(got<PlaceActor>().empty());
      }
      EXPECT_EQ(state(1), ActorState::dead);
      EXPECT_EQ(remembered(), 1u);
    }
    run(actors->on_watch(actor_id(1), kClient, now));
    EXPECT_EQ(got<ActorUpdateTo>().at(0).location.state, ActorState::dead);
    run(actors->on_unwatch(actor_id(1), kClient));
    EXPECT_EQ(remembered(), 0u) << "kClient has heard";
  };
  for (const bool intended : {false, true}) {
    dead_by_itself(intended);
    no_other_is_made();
  }
  auto life = live();
  run(actors->on_kill(actor_id(1), false, now));
  run(actors->on_died(actor_id(1), life, killed, true, now));
  no_other_is_made();

  // The actor dies while its maker's question waits for another node.
  life = live();
  restart({{kA, 1}, {kB, 1}, {kClient, 1}});
  actors->on_registered(kClient, 0);
  run(actors->on_spawn({kClient, 5, plain, false, true}, now));
  run(actors->on_node_hosts({kClient, 1, store->epoch(), {}}, now));
  run(actors->on_node_hosts({kB, 1, store->epoch(), {{plain, life, 42, 0}}}, now));
  run(actors->on_died(actor_id(1), life, killed, true, now));
  no_other_is_made();

  dead_by_itself(false);
  actors->on_registered(kClient, 0);
  run(actors->on_node_hosts({kClient, 1, store->epoch(), {}}, now));
  EXPECT_EQ(remembered(), 0u) << "it does not ask again";
  dead_by_itself(false);
  run(actors->on_node_dead(kClient, 1, "silent", now));
  EXPECT_EQ(remembered(), 0u) << "it cannot ask again";
  live();
  run(actors->on_job_ended(plain.job));
  EXPECT_EQ(remembered(), 0u) << "who asks then is refused";
}

TEST_F(DirectoryTest, AKillOfALifeIsSaidAgainToANodeThatRegistersWithIt) {
  const ActorSpec plain = spec(1, "", 5);
  spawn(plain);
  const auto life = actors->find(plain.id)->incarnation;
  run(actors->on_placed(plain.id, life, kA, 1));
  const auto registers = [&](std::uint64_t one, ProcessIndex worker, bool ended = false) {
    run(actors->on_node_hosts({kA, 1, store->epoch(), {{plain, one, worker, 0, ended}}}, now));
    return got<StopActorAt>().size();
  };
  EXPECT_EQ(registers(life, 0), 0u) << "nobody has killed it";
  run(actors->on_kill(plain.id, true, now, life));
  EXPECT_EQ(got<StopActorAt>().size(), 1u);
  ASSERT_EQ(registers(life, 0), 1u) << "the first may be lost with the connection";
  EXPECT_EQ(got<StopActorAt>()[0].incarnation, life);
  EXPECT_FALSE(got<StopActorAt>()[0].for_good);
  run(actors->on_started(plain.id, life, kA, 1, 42, now));
  EXPECT_EQ(registers(life, 42), 1u);
  EXPECT_EQ(registers(life, 42, true), 0u) << "it has ended";
  run(actors->on_died(plain.id, life, Error(Code::worker_died, "killed"), false, now));
  const auto next = bring_up(1);
  EXPECT_EQ(registers(next, 42), 0u) << "no later life ends";
}

TEST_F(DirectoryTest, WhatAMakerHostedBeforeItRegisteredAgainDoesNotSayThatItHasHeard) {
  spawn(spec(1));
  bring_up(1, kA);
  actors->on_registered(kClient, 3);  // this overtakes messages that were sent after registration 2
  run(actors->on_kill(actor_id(1), false, now));
  run(actors->on_node_hosts({kClient, 1, store->epoch(), {}, 0, false, 2}, now));
  hosts(kA, 1);
  EXPECT_EQ(remembered(), 1u) << "it asks again";
  run(actors->on_node_hosts({kClient, 1, store->epoch(), {}, 0, false, 3}, now));
  EXPECT_EQ(remembered(), 0u);
  spawn(spec(2));  // from a new process in that one's place
  bring_up(2, kA);
  run(actors->on_node_dead(kClient, 1, "silent", now));
  actors->on_registered(kClient, 1);
  spawn(spec(3));
  bring_up(3, kA);
  actors->on_registered(kClient, 2);
  run(actors->on_kill(actor_id(3), false, now));
  hosts(kA, 1);
  run(actors->on_node_hosts({kClient, 2, store->epoch(), {}, 0, false, 2}, now));
  EXPECT_EQ(remembered(), 0u);
}

TEST_F(DirectoryTest, HandlesThatGoBeforeTheNodeHasSpokenEndTheActorWhenItHas) {
  const ActorSpec plain = spec(1);
  spawn(plain);
  const auto life = bring_up(1);
  restart({{kA, 1}});
  run(actors->on_handles_gone(actor_id(1)));
  run(actors->on_node_hosts({kA, 1, store->epoch(), {{plain, life, 42, 0}}}, now));
  ASSERT_EQ(got<StopActorAt>().size(), 1u);
  EXPECT_EQ(state(1), ActorState::dead);
}

TEST_F(DirectoryTest, WhatNobodyHostsIsMadeAnewOnlyWhenEveryNodeHasSpokenOrDied) {
  ActorSpec kept = spec(1, "kept");
  kept.detached = true;
  spawn(kept);
  const auto life = bring_up(1);
  spawn(spec(2, "plain"));
  bring_up(2);
  restart({{kA, 1}, {kB, 1}});
  run(actors->on_watch(actor_id(2), kClient, now));
  run(actors->on_find(kClient, 7, "default", "plain"));
  run(actors->on_node_hosts({kB, 1, store->epoch(), {}}, now));
  EXPECT_EQ(state(1), ActorState::pending);  // kA may still come back with the actor
  EXPECT_TRUE(got<ActorReply>().empty());
  run(actors->on_node_dead(kA, 1, "silent", now));
  ASSERT_EQ(got<ActorReply>().size(), 1u);
  EXPECT_FALSE(got<ActorReply>()[0].actor) << "it went with its node";
  ASSERT_EQ(got<PlaceActor>().size(), 1u);
  EXPECT_GT(got<PlaceActor>()[0].incarnation, life);
  ASSERT_TRUE(actors->next_deadline());
  now = *actors->next_deadline();  // until then the maker's spawn may still arrive
  run(actors->on_tick(now));
  EXPECT_EQ(got<ActorUpdateTo>().at(0).location.state, ActorState::dead);
  EXPECT_FALSE(actors->next_deadline());
  EXPECT_TRUE(spawn(spec(3, "plain"), true).created);  // the name is free again
  // A late agent that has the old life of the detached actor is told to stop it.
  run(actors->on_node_hosts({kA, 9, store->epoch(), {{kept, life, 42, 0}}}, now));
  EXPECT_EQ(got<StopActorAt>().size(), 1u);
}

TEST_F(DirectoryTest, TheDeadAreForgottenInOrder) {
  actors.emplace(DirectoryOptions{.dead_kept = 2}, 1);
  for (std::uint64_t n = 1; n <= 3; ++n) {
    spawn(spec(n));
    run(actors->on_kill(actor_id(n), false, now));
  }
  EXPECT_FALSE(actors->find(actor_id(1)).has_value());
  EXPECT_TRUE(actors->find(actor_id(3)).has_value());
  run(actors->on_watch(actor_id(1), kClient, now));
  EXPECT_EQ(got<ActorUpdateTo>().at(0).location.state, ActorState::pending);
  now = *actors->next_deadline();
  run(actors->on_tick(now));
  EXPECT_EQ(got<ActorUpdateTo>().at(0).location.error->code, Code::actor_died);
}

TEST_F(DirectoryTest, WhoAsksMayBeHeardBeforeWhoMakes) {
  run(actors->on_watch(actor_id(1), kB, now));
  EXPECT_EQ(got<ActorUpdateTo>().at(0).location.state, ActorState::pending);
  now += 4s;
  spawn(spec(1));
  EXPECT_EQ(got<ActorUpdateTo>().at(0).watcher, kB);
  bring_up(1);
  EXPECT_EQ(got<ActorUpdateTo>().at(0).watcher, kB);
  EXPECT_FALSE(actors->next_deadline());

  run(actors->on_kill(actor_id(2), true, now));  // there is nothing to restart
  EXPECT_FALSE(actors->next_deadline());
  run(actors->on_kill(actor_id(2), false, now));
  run(actors->on_watch(actor_id(2), kA, now));
  EXPECT_TRUE(spawn(spec(2, "n")).created);
  EXPECT_TRUE(got<PlaceActor>().empty());
  EXPECT_EQ(got<ActorUpdateTo>().at(0).location.state, ActorState::dead);
  EXPECT_EQ(state(2), ActorState::dead);
  EXPECT_TRUE(spawn(spec(3, "n")).created) << "its name is free";
}

TEST_F(DirectoryTest, AFindKnowsWhoCountsTheHandles) {
  ActorSpec s = spec(1, "n");
  s.lifetime = ObjectId{3, 4};
  s.owner = kB;
  s.detached = true;
  EXPECT_EQ(spawn(s).lifetime, s.lifetime);
  restart({});
  run(actors->on_find(kClient, 8, "default", "n"));
  EXPECT_EQ(got<ActorReply>().at(0).lifetime, s.lifetime);
  EXPECT_EQ(got<ActorReply>().at(0).owner, kB);
}

TEST_F(DirectoryTest, TheDeadKeepNoArguments) {
  spawn(spec(1));
  bring_up(1);
  run(actors->on_handles_gone(actor_id(1)));
  EXPECT_TRUE(got<StopActorAt>().at(0).graceful);
  EXPECT_TRUE(actors->list().at(0).first.creation.empty());
}

}  // namespace
}  // namespace troupe::control::directory_test
