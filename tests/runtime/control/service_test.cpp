// Tests all of control together. Actors are restarted elsewhere and ended with their job. Nothing
// is sent before it is durable, and a new control finds everything again. placing_test.cpp tests
// where actors are placed.
#include "tests/runtime/control/service_fixture.hpp"

#include <gtest/gtest.h>

namespace troupe::control::service_test {
namespace {

TEST_F(ServiceTest, WhoVotesKnowsANewcomerAsSoonAsThatIsOne) {
  join(kA, 4);
  join(kB, 4);
  service->on_tick(now);  // the list of nodes was just sent: the next one is due later
  out.sent.clear();
  join(kC, 4);
  for (const NodeId node : {kA, kB, kC}) {
    ASSERT_FALSE(told<ClusterNodes>(node).empty()) << "if control stopped now, nobody answered C";
    EXPECT_EQ(last<ClusterNodes>(node).rows.size(), 3u);
  }
}

TEST_F(ServiceTest, ADeadNodesActorsAreRestartedElsewhereAndEverybodyIsTold) {
  join_all();
  ActorSpec s = spec(1, 1);
  s.max_restarts = 1;
  s.owner = kB;
  spawn(s);
  EXPECT_EQ(placed(1), kB);
  started(1);
  say(kA, WatchActor{s.id});
  const auto first = start_of(1).incarnation;
  service->on_closed(kB, now);
  ASSERT_EQ(out.probes.size(), 1u);
  EXPECT_EQ(out.probes[0].address, "tcp://127.0.0.1:7002");
  EXPECT_FALSE(service->view().find(kB)->accepts);
  service->on_probe(kB, epochs[kB], true, now);
  EXPECT_TRUE(told<NodeIsDead>(kA).empty());  // not durable yet
  EXPECT_EQ(placed(1), kB);
  flush();
  EXPECT_EQ(last<NodeIsDead>(kA).node, kB);
  EXPECT_EQ(told<NodeIsDead>(kC).size(), 1u);
  EXPECT_EQ(out.fenced[kB], epochs[kB] + 1);
  EXPECT_NE(placed(1), kB);
  EXPECT_TRUE(start_of(1).restarted);
  EXPECT_GT(start_of(1).incarnation, first);
  started(1);
  EXPECT_EQ(last<ActorLocation>(kA).state, ActorState::alive);
  EXPECT_NE(last<ActorLocation>(kA).node, kB);
  // Every further message of the node is answered with a Fence; its key is revoked later.
  const std::size_t fences = told<Fence>(kB).size();
  say(kB, Heartbeat{kB, epochs[kB], 1, 0});
  EXPECT_EQ(told<Fence>(kB).size(), fences + 1);
  say(kB, ActorStarted{s.id, first, 9});
  EXPECT_EQ(state(1), ActorState::alive);
  EXPECT_TRUE(out.revoked.empty());
  pass(80s, {kA, kC});
  EXPECT_EQ(out.revoked, (std::vector<NodeId>{kB}));
}

// The node of the maker is silent, but for less than the time after which it is dead. Until then
// the actor must not be called unknown.
TEST_F(ServiceTest, AnActorWhoseMakerIsSilentForLessThanADeathIsNotCalledUnknown) {
  join_all();
  say(kA, WatchActor{spec(1, 1).id});  // kB passed the handle on; its request to control was lost
  pass(9500ms, {kA, kC});
  EXPECT_EQ(last<ActorLocation>(kA).state, ActorState::pending);
  pass(250ms, {kA, kB, kC});
  spawn(spec(1, 1), kB);
  started(1);
  EXPECT_EQ(last<ActorLocation>(kA).state, ActorState::alive);
}

TEST_F(ServiceTest, AnActorThatNobodyHasMadeIsCalledUnknown) {
  join_all();
  pass(5s, {kA, kB, kC});
  say(kA, WatchActor{spec(1, 1).id});
  pass(4750ms, {kA, kB, kC});
  EXPECT_EQ(last<ActorLocation>(kA).state, ActorState::pending);
  pass(250ms, {kA, kB, kC});
  EXPECT_EQ(last<ActorLocation>(kA).state, ActorState::dead);
  EXPECT_NE(last<ActorLocation>(kA).error->message.find("not known"), std::string::npos);
}

TEST_F(ServiceTest, WhoWasSilentHasAWhileToSayWhatItHasMade) {
  join_all();
  say(kA, WatchActor{spec(1, 1).id});
  pass(4s, {kA, kC});
  pass(4500ms, {kA, kB, kC});
  EXPECT_EQ(last<ActorLocation>(kA).state, ActorState::pending);
  pass(500ms, {kA, kB, kC});
  EXPECT_EQ(last<ActorLocation>(kA).state, ActorState::dead);
}

TEST_F(ServiceTest, NobodyIsAwaitedForLongerThanAnybodyCanBeSilent) {
  join_all();
  say(kA, WatchActor{spec(1, 1).id});
  for (int i = 0; i < 5; ++i) pass(2750ms, {kA, kC}), pass(250ms, {kA, kB, kC});
  EXPECT_EQ(last<ActorLocation>(kA).state, ActorState::dead);
}

TEST_F(ServiceTest, AStartThatAResetLostIsPlacedAgainAndOneThatArrivedIsNot) {
  join(kA, 4);
  for (const std::uint64_t n : {1, 2}) {
    ActorSpec s = spec(n, 1);
    s.job = {};
    spawn(s);
  }
  const auto first = start_of(1).incarnation, second = start_of(2).incarnation;
  service->on_reset(kA, now);
  join(kA, 4);
  NodeHosts hosts;
  hosts.epoch = epochs[kA];
  hosts.control_epoch = service->control_epoch();
  hosts.actors.push_back({spec(2, 1), second, 42, 0});  // the report of this start was lost
  say(kA, hosts);
  EXPECT_EQ(state(2), ActorState::alive);
  EXPECT_EQ(start_of(2).incarnation, second);
  EXPECT_GT(start_of(1).incarnation, first);
  say(kA, ActorStarted{ActorId{7, 1}, first, 9});  // the start was late: no second life
  EXPECT_EQ(last<StopActorAt>(kA).incarnation, first);
}

TEST_F(ServiceTest, AStartThatAResetLostIsNotTakenForALifeBefore) {
  join(kA, 4);
  ActorSpec s = spec(1, 1);
  s.job = {};
  s.max_restarts = 1;
  spawn(s);
  started(1);
  const ActorId id{7, 1};
  const auto first = start_of(1).incarnation;
  const auto error = Error(Code::worker_died, "killed by signal 9").shared_info();
  say(kA, ActorGone{id, first, error, false});
  const auto second = start_of(1).incarnation;
  ASSERT_GT(second, first);
  const auto register_again = [&](std::uint64_t life) {
    service->on_reset(kA, now);
    join(kA, 4);
    NodeHosts hosts;
    hosts.epoch = epochs[kA];
    hosts.control_epoch = service->control_epoch();
    hosts.actors.push_back({spec(1, 1), life, 42, 0, true});
    say(kA, hosts);
  };
  register_again(first);  // the second start was lost
  const auto third = start_of(1).incarnation;
  EXPECT_GT(third, second);
  register_again(third);  // this start arrived, and its life ended
  EXPECT_EQ(start_of(1).incarnation, third) << "not lost: its end is told again";
  say(kA, ActorGone{id, third, error, false});
  EXPECT_EQ(state(1), ActorState::dead) << "it had one restart";
}

TEST_F(ServiceTest, PagesOfWhatANodeHostsAreBoundedInBytes) {
  options.max_hosted_bytes = 1u << 20;
  start();
  join(kA, 4);
  for (std::uint32_t page = 0; page < 3; ++page) {
    NodeHosts hosts;
    hosts.epoch = epochs[kA];
    hosts.control_epoch = service->control_epoch();
    hosts.page = page;
    hosts.more = true;
    hosts.actors.push_back({spec(page, 1), page + 1, 42, 0});
    hosts.actors[0].spec.creation.assign(400u << 10, 'x');
    EXPECT_TRUE(out.revoked.empty());
    say(kA, hosts);
  }
  EXPECT_EQ(out.revoked, std::vector<NodeId>{kA});
}

TEST_F(ServiceTest, WhatANodeHostsCountsWhenItsLastPageHasCome) {
  join(kA, 4);
  for (const std::uint64_t n : {1, 2, 3}) {
    ActorSpec s = spec(n, 1);
    s.job = {};
    spawn(s);
    started(n);
  }
  const auto page = [&](std::uint32_t number, bool more, const std::vector<std::uint64_t>& actors) {
    NodeHosts hosts;
    hosts.epoch = epochs[kA];
    hosts.control_epoch = service->control_epoch();
    hosts.page = number;
    hosts.more = more;
    for (const std::uint64_t n : actors)
      hosts.actors.push_back({spec(n, 1), start_of(n).incarnation, ProcessIndex::of(40 + n), 0});
    say(kA, hosts);
  };
  page(0, true, {1});
  page(1, true, {2});
  EXPECT_EQ(state(3), ActorState::alive) << "its page has not come";
  service->on_reset(kA, now);  // and this one will not arrive either
  join(kA, 4);
  page(1, false, {2});
  EXPECT_EQ(state(1), ActorState::alive) << "a page without those before says nothing";
  page(0, true, {1});
  page(1, false, {2});
  EXPECT_EQ(state(1), ActorState::alive);
  EXPECT_EQ(state(2), ActorState::alive);
  EXPECT_EQ(state(3), ActorState::dead) << "it is gone: it had no restarts";
}

TEST_F(ServiceTest, ASilentNodeIsNotUsedAndThenDead) {
  join_all();
  pass(4s, {kA, kC});
  EXPECT_FALSE(service->view().find(kB)->accepts);
  EXPECT_TRUE(last<ClusterNodes>(kA).rows.at(1).suspect);
  pass(1s, {kA, kB, kC});
  EXPECT_TRUE(service->view().find(kB)->accepts);
  EXPECT_FALSE(last<ClusterNodes>(kA).rows.at(1).suspect);
  pass(12s, {kA, kC});
  EXPECT_EQ(last<NodeIsDead>(kA).node, kB);
  pass(1s, {kA, kC});
  EXPECT_EQ(last<ClusterNodes>(kA).rows.size(), 2u);
  EXPECT_EQ(service->view().find(kB), nullptr);
}

TEST_F(ServiceTest, NamesAreTakenOnceAndFound) {
  join_all();
  EXPECT_TRUE(spawn(spec(1, 1, "counter")).created);
  EXPECT_EQ(spawn(spec(2, 1, "counter"), kB).error->code, Code::invalid_argument);
  const ActorReply same = spawn(spec(3, 1, "counter"), kB, true);
  EXPECT_FALSE(same.created);
  EXPECT_EQ(same.actor, (ActorId{7, 1}));
  EXPECT_EQ(same.owner, kA);
  EXPECT_EQ(same.lifetime, (ObjectId{8, 1}));
  say(kC, FindActor{9, "", "counter"});
  EXPECT_EQ(last<ActorReply>(kC).actor, (ActorId{7, 1}));
  EXPECT_EQ(last<ActorReply>(kC).owner, kA);
  started(1);
  say(kA, HandlesGone{ActorId{7, 1}});
  EXPECT_TRUE(last<StopActorAt>(placed(1)).graceful);
  say(kC, FindActor{10, "", "counter"});
  EXPECT_EQ(last<ActorReply>(kC).actor, ActorId{});
}

TEST_F(ServiceTest, AJobsActorsEndAndThenItsEndIsToldToAll) {
  join_all();
  spawn(spec(1, 1));
  started(1);
  ActorSpec detached = spec(2, 1);
  detached.detached = true;
  spawn(detached);
  started(2);
  service->on_message(kA, DriverDied{kJob, "killed by signal 9"}, now);
  flush();
  EXPECT_EQ(state(1), ActorState::alive) << "its handles go first";
  EXPECT_EQ(spawn(spec(3, 1)).error->code, Code::cancelled);
  pass(500ms, {kA, kB, kC});
  EXPECT_EQ(state(1), ActorState::dead);
  EXPECT_EQ(state(2), ActorState::alive);
  ASSERT_EQ(told<StopActorAt>(placed(1)).size(), 1u);
  EXPECT_TRUE(last<StopActorAt>(placed(1)).graceful);
  EXPECT_TRUE(told<JobEnded>(kB).empty());
  say(placed(1), ActorGone{ActorId{7, 1}, start_of(1).incarnation, nullptr, true});
  for (const NodeId node : {kA, kB, kC}) {
    EXPECT_EQ(last<JobEnded>(node).job, kJob);
    EXPECT_EQ(last<JobEnded>(node).state, JobState::failed);
  }
  EXPECT_EQ(spawn(spec(3, 1)).error->code, Code::cancelled);
  say(kB, GetJob{3, kJob});
  EXPECT_EQ(last<JobInfo>(kB).job->state, JobState::failed);
  say(kB, GetJob{4, JobId{5, 5}});
  EXPECT_FALSE(last<JobInfo>(kB).job.has_value());
}

TEST_F(ServiceTest, AJobWhoseActorsDoNotEndIsOverInTime) {
  join_all();
  spawn(spec(1, 1));
  started(1);
  say(kA, FinishJob{kJob});
  say(kA, FinishJob{kJob});  // sent again
  pass(2750ms, {kA, kB, kC});
  EXPECT_TRUE(told<JobEnded>(kB).empty());
  pass(500ms, {kA, kB, kC});
  EXPECT_EQ(told<JobEnded>(kB).size(), 1u);
  EXPECT_EQ(last<JobEnded>(kB).state, JobState::finished);
  EXPECT_FALSE(last<StopActorAt>(placed(1)).graceful) << "it is killed";
  EXPECT_EQ(spawn(spec(3, 1)).error->code, Code::cancelled);
}

TEST_F(ServiceTest, AJobThatAPersonStopsIsListedAsStopped) {
  join_all();
  const std::string why = "stopped by alice with troupe job stop";
  say(kA, FinishJob{kJob, why});
  EXPECT_EQ(last<JobEnded>(kB).state, JobState::stopped);
  EXPECT_EQ(last<JobEnded>(kB).why, why);
  EXPECT_EQ(service->jobs().find(kJob)->state, JobState::stopped);
}

TEST_F(ServiceTest, AJobEndsWithItsNode) {
  join_all();
  say(kA, Leaving{kA, epochs[kA]});
  EXPECT_EQ(last<JobEnded>(kB).job, kJob);
  EXPECT_EQ(last<JobEnded>(kB).state, JobState::failed);
}

TEST_F(ServiceTest, NothingLeavesBeforeItsCommitIsDurable) {
  service->on_message(kA, RegisterNode{description(kA, 4), 0, SessionId{1, 1}, 1}, now);
  EXPECT_TRUE(out.sent.empty());
  ASSERT_TRUE(service->has_commit());
  const auto& group = service->begin_commit();
  // Further messages arrive while that commit is being written. They wait for a commit of their
  // own.
  StartJob job;
  job.job.id = kJob;
  service->on_message(kA, job, now);
  service->on_message(kA, KeyValueRequest{4, KeyValueRequest::Verb::get, "", "k", "", "", {}}, now);
  EXPECT_TRUE(out.sent.empty());
  EXPECT_FALSE(service->has_commit());
  ASSERT_TRUE(store->commit(group, Need::essential).ok());
  service->finish_commit(now);
  EXPECT_EQ(told<Registered>(kA).size(), 1u);
  EXPECT_TRUE(told<JobReply>(kA).empty());
  EXPECT_TRUE(told<KvReply>(kA).empty());  // a read shows nothing that could still be lost
  flush();
  EXPECT_EQ(told<JobReply>(kA).size(), 1u);
  EXPECT_EQ(told<KvReply>(kA).size(), 1u);
}

TEST_F(ServiceTest, AListSaysHowManyRowsItHasNoRoomFor) {
  join_all();
  for (std::uint64_t i = 0; i < 5'000; ++i)
    service->on_message(
        kA, NameObject{i, NameObject::Verb::detach, {"n" + std::to_string(i), {5, i}, kB, kA}},
        now);
  flush();
  say(kB, ListRequest{8, ListRequest::What::objects});
  const ListReply reply = last<ListReply>(kB);
  EXPECT_GT(reply.objects.size(), 2'000u);
  EXPECT_EQ(reply.objects.size() + reply.left_off, 5'000u);
  EXPECT_LT(encode(FromControl(reply)).size(), 1u << 20);
  say(kB, ListRequest{9, ListRequest::What::nodes});
  EXPECT_EQ(last<ListReply>(kB).left_off, 0u);
}

TEST_F(ServiceTest, DeadNodesAreListedWithWhyAlsoByTheNextControl) {
  std::int64_t unix_now = 1'000'000'000'000;
  options.wall_clock = [&] { return unix_now; };
  start();
  join_all();
  say(kC, Leaving{kC, epochs[kC]});
  unix_now += 5'000'000'000;
  pass(12s, {kA});  // kB is silent
  for (int life = 0; life < 2; ++life) {
    say(kA, ListRequest{8, ListRequest::What::nodes});
    const ListReply reply = last<ListReply>(kA);
    EXPECT_EQ(reply.nodes.size(), 1U);
    ASSERT_EQ(reply.dead_nodes.size(), 2U);
    const DeadNode &first = reply.dead_nodes[0].left ? reply.dead_nodes[1] : reply.dead_nodes[0],
                   &left = reply.dead_nodes[0].left ? reply.dead_nodes[0] : reply.dead_nodes[1];
    EXPECT_EQ(first.description.name, "n2");
    EXPECT_EQ(first.description.resources.cpus, 4 * kUnit);
    EXPECT_EQ(first.why, "it was silent for 10 s");
    EXPECT_EQ(first.died_unix_ns, 1'005'000'000'000);
    EXPECT_TRUE(first.description.public_key.empty());
    EXPECT_EQ(left.description.name, "n3");
    EXPECT_TRUE(left.left);
    start();
    join(kA, 4);
  }
  unix_now += DeadNodes::kKeptNs;
  say(kA, ListRequest{9, ListRequest::What::nodes});
  EXPECT_TRUE(last<ListReply>(kA).dead_nodes.empty());
}

TEST_F(ServiceTest, WhatControlLogsIsToldToTheAgentBesideIt) {
  join_all();
  say(kB, FinishJob{kJob});  // the job of another node
  ASSERT_EQ(told<Notice>(kA).size(), 1U);
  EXPECT_EQ(last<Notice>(kA).kind, Notice::Kind::refused);
  EXPECT_EQ(last<Notice>(kA).text, out.said.at(0));
  EXPECT_TRUE(told<Notice>(kB).empty());
}

TEST_F(ServiceTest, AnObjectsNameIsToldWhenItIsDurableAndItsKeeperHearsThatItIsForgotten) {
  join_all();
  service->on_message(kA, NameObject{6, NameObject::Verb::detach, {"weights", {5, 1}, kB, kA}},
                      now);
  EXPECT_TRUE(told<NamedObject>(kA).empty());
  flush();
  EXPECT_TRUE(last<NamedObject>(kA).done);
  say(kB, NameObject{7, NameObject::Verb::find, {"weights"}});
  EXPECT_EQ(last<NamedObject>(kB).what.owner, kB);
  say(kB, ListRequest{8, ListRequest::What::objects});
  ASSERT_EQ(last<ListReply>(kB).objects.size(), 1u);
  EXPECT_EQ(last<ListReply>(kB).objects[0].name, "weights");
  service->on_message(kB, NameObject{9, NameObject::Verb::forget, {"weights"}}, now);
  EXPECT_TRUE(told<ObjectForgotten>(kA).empty());
  flush();
  EXPECT_EQ(last<NamedObject>(kB).request, 9u);
  EXPECT_EQ(last<ObjectForgotten>(kA).object, (ObjectId{5, 1}));
  // A dead keeper has nothing to release.
  say(kA, NameObject{10, NameObject::Verb::detach, {"weights", {5, 2}, kA, kA}});
  say(kA, Leaving{kA, epochs[kA]});
  say(kB, NameObject{11, NameObject::Verb::forget, {"weights"}});
  EXPECT_TRUE(last<NamedObject>(kB).done);
  EXPECT_EQ(told<ObjectForgotten>(kA).size(), 1u);
}

TEST_F(ServiceTest, ShortSpaceRefusesWritesAndNothingElse) {
  join_all();
  disk->set_free_space(Bytes{32ull << 20});
  const auto put = [&](const char* key) {
    KeyValueRequest request{5, KeyValueRequest::Verb::put, "", key, "v", "", PutMode::always};
    say(kA, request);
    return last<KvReply>(kA);
  };
  EXPECT_EQ(put("k").error->code, Code::no_space);
  EXPECT_EQ(spawn(spec(1, 1, "named")).error->code, Code::no_space);
  const NameObject detach{6, NameObject::Verb::detach, {"weights", {5, 1}, kA, kA}};
  say(kA, detach);
  EXPECT_EQ(last<NamedObject>(kA).error->code, Code::no_space);
  EXPECT_EQ(spawn(spec(2, 1)).error, nullptr);
  StartJob job;
  job.job.id = JobId{5, 2};
  say(kA, job);
  EXPECT_EQ(last<JobReply>(kA).error->code, Code::no_space);
  say(kB, Leaving{kB, epochs[kB]});  // a death must be written even when space is short
  EXPECT_EQ(last<NodeIsDead>(kA).node, kB);
  disk->set_free_space(Bytes{1ull << 40});
  EXPECT_EQ(put("k").error, nullptr);
}

TEST_F(ServiceTest, AFloodOfWritesIsRefusedUntilTheDiskHasCaughtUp) {
  options.max_waiting_bytes = 10'000;
  start();
  join(kA, 1);
  std::size_t refused = 0;
  for (std::uint64_t i = 0; i < 20; ++i) {
    KeyValueRequest put{i,
                        KeyValueRequest::Verb::put,
                        "",
                        "k" + std::to_string(i),
                        std::string(1000, 'x'),
                        "",
                        PutMode::always};
    service->on_message(kA, put, now);
  }
  flush();
  for (const KvReply& reply : told<KvReply>(kA)) refused += reply.error ? 1 : 0;
  EXPECT_EQ(told<KvReply>(kA).size(), 20u);
  EXPECT_GT(refused, 5u);
  EXPECT_LT(refused, 15u);
}

TEST_F(ServiceTest, OnlyRegisteredNodesAreServed) {
  EXPECT_EQ(spawn(spec(1, 1)).error->code, Code::unavailable);
  StartJob job;
  say(kA, job);
  EXPECT_EQ(last<JobReply>(kA).error->code, Code::unavailable);
  RegisterNode other;
  other.node = description(kB, 1);
  say(kA, other);  // no node can register another
  EXPECT_TRUE(service->members().nodes().empty());
}

TEST_F(ServiceTest, TheListOfNodesIsToldAtMostOnceAnInterval) {
  join_all();
  pass(1s, {kA, kB, kC});
  const int before = out.broadcasts;
  for (int i = 0; i < 100; ++i) {
    now += 1ms;
    report(kA, i % 4);
    if (service->next_tick() <= now) service->on_tick(now);
  }
  EXPECT_GE(out.broadcasts, before + 1);
  EXPECT_LE(out.broadcasts, before + 2);
  pass(1s, {kA, kB, kC});
  const ClusterNodes nodes = last<ClusterNodes>(kC);
  ASSERT_EQ(nodes.rows.size(), 3u);
  EXPECT_EQ(nodes.rows[0].report.view.free.cpus, 3 * kUnit);
  EXPECT_EQ(nodes.rows[0].description.public_key, "key1");
  const auto all = told<ClusterNodes>(kC);
  for (std::size_t i = 1; i < all.size(); ++i) EXPECT_GT(all[i].version, all[i - 1].version);
}

TEST_F(ServiceTest, ADrainingNodeGetsNothingNew) {
  join_all();
  say(kB, DrainRequest{6, kC});
  EXPECT_EQ(told<DrainNode>(kC).size(), 1u);
  EXPECT_TRUE(last<ListReply>(kB).nodes.at(2).draining);
  EXPECT_EQ(last<ListReply>(kB).request, 6u);
  ActorSpec s = spec(1, 1);
  s.demand.need.gpus = kUnit;
  spawn(s);
  EXPECT_EQ(placed(1), NodeId{});
  say(kA, ListRequest{8, ListRequest::What::actors});
  const auto rows = last<ListReply>(kA).actors;
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_NE(rows[0].why.find("draining"), std::string::npos) << rows[0].why;
}

TEST_F(ServiceTest, ANewControlFindsNodesActorsNamesAndJobsAgain) {
  join_all();
  ActorSpec kept = spec(1, 1, "kept");
  kept.detached = true;
  spawn(kept);
  started(1);
  spawn(spec(2, 1, "plain"));
  started(2);
  const NodeId kept_at = placed(1), plain_at = placed(2);
  const auto kept_life = start_of(1).incarnation, plain_life = start_of(2).incarnation;
  const Epoch before = service->control_epoch();
  start();
  EXPECT_GT(service->control_epoch(), before);
  EXPECT_EQ(out.admitted.size(), 3u);
  EXPECT_EQ(placed(1), NodeId{});  // nothing is restarted while a node may still host it
  for (const NodeId node : {kA, kB, kC}) {
    join(node, 4, node == kC ? 2 : 0);
    EXPECT_EQ(last<Registered>(node).control_epoch, service->control_epoch());
    NodeHosts hosts;
    hosts.epoch = epochs[node];
    hosts.control_epoch = service->control_epoch();
    if (node == kept_at) hosts.actors.push_back({kept, kept_life, 41, 0});
    if (node == plain_at) hosts.actors.push_back({spec(2, 1, "plain"), plain_life, 42, 0});
    say(node, hosts);
  }
  EXPECT_EQ(state(1), ActorState::alive);
  EXPECT_EQ(state(2), ActorState::alive);
  EXPECT_EQ(placed(1), NodeId{});
  say(kB, FindActor{1, "", "plain"});
  EXPECT_EQ(last<ActorReply>(kB).actor, (ActorId{7, 2}));
  EXPECT_TRUE(service->jobs().is_running(kJob));
  EXPECT_EQ(last<ClusterNodes>(kA).version >> 32, service->control_epoch());
}

/// Detached actors of the job may start again under any later control, with the same signals.
TEST_F(ServiceTest, ANewControlKnowsWithWhichSignalsAJobsWorkersBegin) {
  join(kA, 4);
  StartJob job;
  job.job.id = kJob;
  job.job.ignored_signals = std::uint64_t{1} << 63;
  job.job.blocked_signals = 2;
  say(kA, job);
  start();
  join(kA, 4);
  say(kA, GetJob{9, kJob});
  const JobInfo info = last<JobInfo>(kA);
  ASSERT_TRUE(info.job);
  EXPECT_EQ(info.job->ignored_signals, std::uint64_t{1} << 63);
  EXPECT_EQ(info.job->blocked_signals, 2u);
}

/// A node that is not listed is dead, even when control died before it could send NodeIsDead.
TEST_F(ServiceTest, ANewControlListsAllButThoseWhoseDeathWasWrittenDown) {
  join_all();
  service->on_message(kB, Leaving{kB, epochs[kB]}, now);
  ASSERT_TRUE(store->commit(service->begin_commit(), Need::essential).ok());
  EXPECT_TRUE(told<NodeIsDead>(kA).empty());
  start();
  join(kA, 4);
  std::vector<NodeId> listed;
  for (const ClusterRow& row : last<ClusterNodes>(kA).rows) listed.push_back(row.description.id);
  EXPECT_EQ(listed, (std::vector<NodeId>{kA, kC})) << "kC has not come back so far";
}

/// The node asks without an epoch, as a new one does, so a Fence could not tell it apart.
TEST_F(ServiceTest, WhoDiedBeforeItHeardThatItWasAMemberIsFencedByTheNextControl) {
  join_all();
  const Epoch epoch = epochs[kC];
  say(kC, Leaving{kC, epoch});
  out.admitted.clear();
  start();
  EXPECT_EQ(out.admitted.back(), kC) << "it must be able to ask";
  EXPECT_EQ(out.fenced.count(kC), 0u);
  RegisterNode again;
  again.node = description(kC, 4);
  again.session = SessionId{kC.low, 1};
  say(kC, again);
  EXPECT_EQ(out.fenced.at(kC), epoch + 1);
  EXPECT_TRUE(told<Registered>(kC).empty());
  EXPECT_TRUE(out.revoked.empty());
  pass(80s, {kA, kB});
  EXPECT_EQ(out.revoked, std::vector<NodeId>{kC}) << "its key is good for nothing else";
}

TEST_F(ServiceTest, ANodeThatComesBackIsToldOfNoEndThatIsNotWrittenDownYet) {
  join_all();
  StartJob other;
  other.job.id = JobId{kJob.high, kJob.low + 1};
  service->on_message(kA, other, now);
  const std::vector<Batch> group = service->begin_commit();
  RegisterNode again;
  again.node = description(kB, 4);
  again.epoch = epochs[kB];
  again.session = SessionId{kB.low, 1};
  service->on_message(kB, again, now);  // waits for that commit only
  service->on_message(kA, FinishJob{kJob}, now);
  ASSERT_TRUE(store->commit(group, Need::essential).ok());
  service->finish_commit(now);
  EXPECT_TRUE(told<JobEnded>(kB).empty());
  flush();
  EXPECT_EQ(last<JobEnded>(kB).job, kJob);
}

TEST_F(ServiceTest, ANewControlRestartsWhatNobodyHostsAndEndsWhatIsOver) {
  join_all();
  ActorSpec kept = spec(1, 1, "kept");
  kept.detached = true;
  spawn(kept);
  started(1);
  spawn(spec(2, 1));
  started(2);
  const NodeId plain_at = placed(2);
  const auto plain_life = start_of(2).incarnation;
  say(kA, FinishJob{kJob});
  pass(4s, {kA, kB, kC});
  start();
  for (const NodeId node : {kA, kB, kC}) {
    join(node, 4, node == kC ? 2 : 0);
    EXPECT_EQ(last<JobEnded>(node).job, kJob);  // the node may not have received it
    NodeHosts hosts;
    hosts.epoch = epochs[node];
    hosts.control_epoch = service->control_epoch();
    if (node == plain_at) hosts.actors.push_back({spec(2, 1), plain_life, 42, 0});
    say(node, hosts);
  }
  EXPECT_NE(placed(1), NodeId{});  // started again
  EXPECT_TRUE(start_of(1).restarted);
  EXPECT_EQ(last<StopActorAt>(plain_at).actor, (ActorId{7, 2}));  // the actor's job is over
}

TEST_F(ServiceTest, AJobWhoseNodesDeathCutItsEndShortEndsAtTheNextStart) {
  join_all();
  service->on_message(kA, Leaving{kA, epochs[kA]}, now);
  ASSERT_TRUE(store->commit(service->begin_commit(), Need::essential).ok());
  start();  // the death is durable, the end of the job is not
  EXPECT_EQ(service->members().nodes().size(), 2u);
  EXPECT_FALSE(service->jobs().is_running(kJob));
}

TEST_F(ServiceTest, AJoinedNodeIsAdmittedOnceItIsDurableAndForgottenWhenItHasRegistered) {
  service->on_join(11, "t1", description(kB, 4), now);
  EXPECT_TRUE(out.joins.empty());
  EXPECT_TRUE(out.admitted.empty());
  flush();
  ASSERT_EQ(out.joins.size(), 1u);
  EXPECT_EQ(out.joins[0].second, nullptr);
  EXPECT_EQ(out.admitted, (std::vector<NodeId>{kB}));
  NodeDescription thief = description(kB, 4);
  thief.public_key = "another";
  service->on_join(12, "t2", thief, now);
  EXPECT_EQ(out.joins.back().second->code, Code::invalid_argument);
  service->on_join(13, "t1", description(kB, 4), now);  // the first answer was lost
  flush();
  EXPECT_EQ(out.joins.back().second, nullptr);
  start();
  EXPECT_EQ(out.admitted, (std::vector<NodeId>{kB}));
  EXPECT_TRUE(service->is_spent("t1"));  // a token stays spent for ever
  EXPECT_FALSE(service->is_spent("t2"));
  service->on_join(15, "t1", description(kC, 4), now);
  EXPECT_EQ(out.joins.back().second->code, Code::invalid_argument);
  join(kB, 4);
  service->on_join(14, "t3", description(kB, 4), now);
  EXPECT_EQ(out.joins.back().second->code, Code::invalid_argument);
  start();
  EXPECT_EQ(out.admitted, (std::vector<NodeId>{kB}));  // admitted once, by its node record
}

TEST_F(ServiceTest, WhoJoinsAndNeverRegistersIsForgottenByThisControlOrTheNext) {
  options.max_joined = 2;
  start();
  const auto joins = [&](std::uint64_t request, NodeId node) {
    service->on_join(request, "t" + std::to_string(request), description(node, 4), now);
    flush();
    return out.joins.back().second;
  };
  joins(1, kB);
  joins(2, kC);
  EXPECT_EQ(joins(3, kA)->code, Code::overloaded);
  service->on_join(1, "t1", description(kB, 4), now);  // a node that has a place keeps it
  flush();
  EXPECT_EQ(out.joins.back().second, nullptr);
  join(kC, 4);
  pass(74s, {kC});
  EXPECT_TRUE(out.revoked.empty());
  pass(2s, {kC});
  EXPECT_EQ(out.revoked, std::vector<NodeId>{kB});
  EXPECT_EQ(joins(4, kB), nullptr) << "its id is free";
  pass(74s, {kC});
  start();
  EXPECT_EQ(out.admitted.size(), 2u);
  pass(74s, {kC});
  EXPECT_TRUE(out.revoked.empty()) << "the next control gives it as long again";
  pass(2s, {kC});
  EXPECT_EQ(out.revoked, std::vector<NodeId>{kB});
  start();
  EXPECT_EQ(out.admitted, std::vector<NodeId>{kC});
}

TEST_F(ServiceTest, ANodeThatDiesSoonAfterItJoinedHasTimeToHearIt) {
  join_all();
  const NodeId node{kC.high, kC.low + 1};
  service->on_join(1, "t1", description(node, 4), now);
  flush();
  join(node, 4);
  pass(40s, {kA, kB, kC, node});
  say(node, Leaving{node, epochs[node]});
  pass(70s, {kA, kB, kC});
  EXPECT_TRUE(out.revoked.empty()) << "from its end, not from when it joined";
  pass(10s, {kA, kB, kC});
  EXPECT_EQ(out.revoked, std::vector<NodeId>{node});
}

TEST_F(ServiceTest, AReportThatComesBeforeTheRegistrationIsDurableCounts) {
  service->on_message(kA, RegisterNode{description(kA, 4), 0, SessionId{1, 1}, 1}, now);
  NodeReport report;
  report.view.free.cpus = kUnit;
  service->on_message(kA, report, now);
  flush();
  EXPECT_EQ(service->view().find(kA)->free.cpus, kUnit);
}

}  // namespace
}  // namespace troupe::control::service_test
