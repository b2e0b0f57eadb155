// All of control as one: actors are placed by resources, restarted elsewhere and ended with their
// job; nothing leaves before it is durable; a new control finds everything again.
#include "troupe/runtime/control/service.hpp"

#include "troupe/runtime/control/memory_store.hpp"

#include <gtest/gtest.h>
#include <algorithm>

namespace troupe::control {
namespace {

using namespace std::chrono_literals;
using scheduling::kUnit;

const NodeId kA{0, 1}, kB{0, 2}, kC{0, 3};
const JobId kJob{5, 1};

/// What left control, in order.
struct Outbox : Service::Out {
  struct Sent {
    NodeId to;
    FromControl message;
  };
  void send(NodeId to, const FromControl& message) override { sent.push_back({to, message}); }
  void broadcast(const std::vector<NodeId>& to, const FromControl& message) override {
    for (const NodeId node : to) sent.push_back({node, message});
    ++broadcasts;
  }
  void probe(const Probe& probe) override { probes.push_back(probe); }
  void admit(const NodeDescription& node) override { admitted.push_back(node.id); }
  void fence(NodeId node, Epoch least) override { fenced[node] = least; }
  void revoke(NodeId node) override { revoked.push_back(node); }
  void say(const std::string& line) override { said.push_back(line); }
  void joined(std::uint64_t request, const std::shared_ptr<const ErrorInfo>& error) override {
    joins.emplace_back(request, error);
  }

  std::vector<Sent> sent;
  int broadcasts = 0;
  std::vector<Probe> probes;
  std::vector<NodeId> admitted, revoked;
  std::map<NodeId, Epoch> fenced;
  std::vector<std::string> said;
  std::vector<std::pair<std::uint64_t, std::shared_ptr<const ErrorInfo>>> joins;
};

struct ServiceTest : testing::Test {
  std::shared_ptr<MemoryDisk> disk = std::make_shared<MemoryDisk>(1);
  std::unique_ptr<Store> store;
  std::unique_ptr<Service> service;
  Outbox out;
  ServiceOptions options;
  Time now = Time{} + 1000s;
  std::map<NodeId, Epoch> epochs;
  std::uint64_t beats = 0;

  void SetUp() override { start(); }
  /// A new control on the same disk; what the old one had not written is gone.
  void start() {
    service.reset();
    store.reset();
    out = Outbox();
    store = open_memory_store(disk, {}).value();
    service = Service::open(*store, options, out, now).value();
    flush();
  }
  void flush() {
    while (service->has_commit()) {
      ASSERT_TRUE(store->commit(service->begin_commit(), Need::essential).ok());
      service->finish_commit(now);
    }
  }
  /// Hands it in and lets the disk catch up.
  void say(NodeId from, const ToControl& message) {
    service->on_message(from, message, now);
    flush();
  }
  /// What this node was told since the last take(), of one kind.
  template <class M>
  std::vector<M> told(NodeId node) const {
    std::vector<M> found;
    for (const auto& one : out.sent)
      if (const M* match = std::get_if<M>(&one.message); match != nullptr && one.to == node)
        found.push_back(*match);
    return found;
  }
  template <class M>
  M last(NodeId node) const {
    const auto all = told<M>(node);
    EXPECT_FALSE(all.empty());
    return all.empty() ? M{} : all.back();
  }
  static NodeDescription description(NodeId id, std::int64_t cpus, std::int64_t gpus = 0) {
    NodeDescription node;
    node.id = id;
    node.name = "n" + std::to_string(id.low);
    node.address = "tcp://127.0.0.1:" + std::to_string(7000 + id.low);
    node.public_key = "key" + std::to_string(id.low);
    node.resources.cpus = cpus * kUnit;
    node.resources.gpus = gpus * kUnit;
    node.beside_control = id == kA;
    return node;
  }
  void join(NodeId id, std::int64_t cpus, std::int64_t gpus = 0) {
    RegisterNode message;
    message.node = description(id, cpus, gpus);
    message.epoch = epochs[id];
    message.session = SessionId{id.low, 1};
    say(id, message);
    epochs[id] = last<Registered>(id).epoch;
  }
  void join_all() {
    join(kA, 4);
    join(kB, 4);
    join(kC, 4, 2);
    StartJob job;
    job.job.id = kJob;
    job.job.name = "train";
    say(kA, job);
    ASSERT_EQ(last<JobReply>(kA).error, nullptr);
  }
  void report(NodeId id, std::int64_t cpus_free, std::int64_t gpus_free = 0) {
    NodeReport message;
    message.view.free.cpus = cpus_free * kUnit;
    message.view.free.gpus = gpus_free * kUnit;
    message.view.gpu_free.assign(static_cast<std::size_t>(gpus_free), kUnit);
    say(id, message);
  }
  /// Time passes with heartbeats of these nodes, in steps of 250 ms.
  void pass(Duration time, std::vector<NodeId> alive) {
    for (const Time end = now + time; now < end;) {
      now += 250ms;
      for (const NodeId node : alive) {
        const auto rosters = told<Roster>(node);
        const std::uint64_t roster = rosters.empty() ? 0 : rosters.back().version;
        say(node, Heartbeat{node, epochs[node], ++beats, roster});
      }
      service->on_tick(now);
      flush();
    }
  }
  static ActorSpec spec(std::uint64_t n, std::int64_t cpus, std::string name = "") {
    ActorSpec s;
    s.id = ActorId{7, n};
    s.job = kJob;
    s.name = std::move(name);
    s.class_name = "Counter";
    s.owner = kA;
    s.lifetime = ObjectId{8, n};
    s.shape.need.cpus = cpus * kUnit;
    return s;
  }
  ActorReply spawn(ActorSpec s, NodeId from = kA, bool get_if_exists = false) {
    SpawnActor message;
    message.request = 77;
    message.spec = std::move(s);
    message.get_if_exists = get_if_exists;
    say(from, message);
    const ActorReply reply = last<ActorReply>(from);
    EXPECT_EQ(reply.request, 77u);
    return reply;
  }
  /// The node to which the start of this actor went last; zero when nowhere.
  NodeId placed(std::uint64_t n) const {
    NodeId at;
    for (const auto& one : out.sent)
      if (const auto* start = std::get_if<StartActorAt>(&one.message);
          start != nullptr && start->spec->id == ActorId{7, n})
        at = one.to;
    return at;
  }
  StartActorAt start_of(std::uint64_t n) const {
    for (auto at = out.sent.rbegin(); at != out.sent.rend(); ++at)
      if (const auto* start = std::get_if<StartActorAt>(&at->message);
          start != nullptr && start->spec->id == ActorId{7, n})
        return *start;
    ADD_FAILURE() << "actor " << n << " was never started";
    return {};
  }
  void started(std::uint64_t n) {
    say(placed(n), ActorStarted{ActorId{7, n}, start_of(n).incarnation, 40 + n});
  }
  ActorState state(std::uint64_t n) const { return service->actors().find(ActorId{7, n})->state; }
};

TEST_F(ServiceTest, ASlowNodeIsSaidOnceShownToAllAndGetsNoActorThatAnotherCanTake) {
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
  ActorSpec wish = spec(1, 1);
  wish.shape.placement = scheduling::Placement::node;
  wish.shape.node = kB;
  wish.shape.soft = true;
  EXPECT_TRUE(spawn(wish).created);
  EXPECT_NE(placed(1), kB);
  ActorSpec must = spec(2, 1);
  must.shape.placement = scheduling::Placement::node;
  must.shape.node = kB;
  EXPECT_TRUE(spawn(must).created);
  EXPECT_EQ(placed(2), kB) << "no other node may take it";
  work(10ms, 4);
  ASSERT_EQ(out.said.size(), 2u);
  EXPECT_EQ(out.said[1], "node n2 is as fast as others again");
  EXPECT_FALSE(row_of_b().avoided);
  EXPECT_EQ(row_of_b().slow, "");
}

TEST_F(ServiceTest, AnActorIsPlacedByItsNeedStartedAndSeenByItsWatchers) {
  join_all();
  ActorSpec s = spec(1, 1);
  s.shape.need.gpus = kUnit;
  EXPECT_TRUE(spawn(s).created);
  EXPECT_EQ(placed(1), kC);  // only it has GPUs
  say(kB, WatchActor{s.id});
  EXPECT_EQ(last<ActorLocation>(kB).state, ActorState::placing);
  started(1);
  const ActorLocation seen = last<ActorLocation>(kB);
  EXPECT_EQ(seen.state, ActorState::alive);
  EXPECT_EQ(seen.node, kC);
  EXPECT_EQ(seen.worker, 41u);
  EXPECT_EQ(seen.incarnation >> 32, service->control_epoch());
  say(kB, WatchActor{s.id, false});
  const std::size_t before = told<ActorLocation>(kB).size();
  say(kA, KillActor{s.id});
  EXPECT_EQ(told<ActorLocation>(kB).size(), before);
  EXPECT_EQ(told<StopActorAt>(kC).size(), 1u);
}

TEST_F(ServiceTest, ActorsPackOnTheirOwnersNodeAndThenSpread) {
  join_all();
  for (std::uint64_t n = 1; n <= 6; ++n) spawn(spec(n, 1));
  EXPECT_EQ(placed(1), kA);
  EXPECT_EQ(placed(2), kA);
  EXPECT_NE(placed(3), kA);  // half of A is in use
  std::map<NodeId, int> count;
  for (std::uint64_t n = 1; n <= 6; ++n) ++count[placed(n)];
  EXPECT_EQ(count.size(), 3u);
}

TEST_F(ServiceTest, WhatWasPlacedIsReckonedUntilAReportShowsIt) {
  join(kA, 4);
  for (std::uint64_t n = 1; n <= 5; ++n) {
    ActorSpec s = spec(n, 1);
    s.job = {};
    spawn(s);
  }
  EXPECT_EQ(placed(4), kA);
  EXPECT_EQ(placed(5), NodeId{});  // four were taken, without any report
  EXPECT_EQ(service->waiting_actors(), 1u);
  report(kA, 4);  // from before the starts: they still count
  pass(1s, {kA});
  EXPECT_EQ(placed(5), NodeId{});
  for (std::uint64_t n = 1; n <= 4; ++n) started(n);
  report(kA, 0);
  pass(1s, {kA});
  EXPECT_EQ(placed(5), NodeId{});
  report(kA, 1);  // somebody made room
  pass(250ms, {kA});
  EXPECT_EQ(placed(5), kA);
  EXPECT_EQ(service->waiting_actors(), 0u);
}

TEST_F(ServiceTest, AStartThatIsAnsweredWithoutAReportIsReckonedForAMomentOnly) {
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

TEST_F(ServiceTest, WaitingActorsAreTakenInOrder) {
  join(kA, 2);
  for (std::uint64_t n = 1; n <= 6; ++n) {
    ActorSpec s = spec(n, 1);
    s.job = {};
    spawn(s);
  }
  for (const std::uint64_t n : {1, 2}) started(n);
  report(kA, 0);
  say(kA, KillActor{ActorId{7, 4}});  // one that waits
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

TEST_F(ServiceTest, WhatNoNodeCanTakeEndsTypedAfterItsTimeout) {
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
  // One that comes in time ends the wait.
  s = spec(2, 64);
  spawn(s);
  pass(10s, {kA, kB, kC});
  join(NodeId{0, 4}, 64);
  EXPECT_EQ(placed(2), (NodeId{0, 4}));
}

TEST_F(ServiceTest, AtOnceWhenToldSoButNotBeforeTheAnnouncedNodesHaveCome) {
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
  // Whatever it still says is answered with its end; its key goes later.
  const std::size_t fences = told<Fence>(kB).size();
  say(kB, Heartbeat{kB, epochs[kB], 1, 0});
  EXPECT_EQ(told<Fence>(kB).size(), fences + 1);
  say(kB, ActorStarted{s.id, first, 9});
  EXPECT_EQ(state(1), ActorState::alive);
  EXPECT_TRUE(out.revoked.empty());
  pass(80s, {kA, kC});
  EXPECT_EQ(out.revoked, (std::vector<NodeId>{kB}));
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
  hosts.actors.push_back({spec(2, 1), second, 42, 0});  // the news of this start were lost
  say(kA, hosts);
  EXPECT_EQ(state(2), ActorState::alive);
  EXPECT_EQ(start_of(2).incarnation, second);
  EXPECT_GT(start_of(1).incarnation, first);
  say(kA, ActorStarted{ActorId{7, 1}, first, 9});  // it had arrived and was slow: no second life
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
  register_again(third);  // this one arrived, and ended
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
  const auto page = [&](std::uint32_t number, bool more, std::vector<std::uint64_t> actors) {
    NodeHosts hosts;
    hosts.epoch = epochs[kA];
    hosts.control_epoch = service->control_epoch();
    hosts.page = number;
    hosts.more = more;
    for (const std::uint64_t n : actors)
      hosts.actors.push_back({spec(n, 1), start_of(n).incarnation, 40 + n, 0});
    say(kA, hosts);
  };
  page(0, true, {1});
  page(1, true, {2});
  EXPECT_EQ(state(3), ActorState::alive) << "its page has not come";
  service->on_reset(kA, now);  // nor will it
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

TEST_F(ServiceTest, AJobsEndStopsItsActorsAndIsToldToAll) {
  join_all();
  spawn(spec(1, 1));
  started(1);
  ActorSpec detached = spec(2, 1);
  detached.detached = true;
  spawn(detached);
  started(2);
  service->on_message(kA, DriverDied{kJob, "killed by signal 9"}, now);
  EXPECT_EQ(state(1), ActorState::alive);
  EXPECT_TRUE(told<JobEnded>(kB).empty());
  flush();
  EXPECT_EQ(state(1), ActorState::dead);
  EXPECT_EQ(state(2), ActorState::alive);
  EXPECT_EQ(told<StopActorAt>(placed(1)).size(), 1u);
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
  // While that is on its way, more comes in: it waits for a commit of its own.
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
  EXPECT_EQ(spawn(spec(2, 1)).error, nullptr);
  StartJob job;
  job.job.id = JobId{5, 2};
  say(kA, job);
  EXPECT_EQ(last<JobReply>(kA).error->code, Code::no_space);
  say(kB, Leaving{kB, epochs[kB]});  // a death must be written all the same
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
  say(kA, other);  // nobody registers another
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
  s.shape.need.gpus = kUnit;
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
  start();
  for (const NodeId node : {kA, kB, kC}) {
    join(node, 4, node == kC ? 2 : 0);
    EXPECT_EQ(last<JobEnded>(node).job, kJob);  // it may not have heard
    NodeHosts hosts;
    hosts.epoch = epochs[node];
    hosts.control_epoch = service->control_epoch();
    if (node == plain_at) hosts.actors.push_back({spec(2, 1), plain_life, 42, 0});
    say(node, hosts);
  }
  EXPECT_NE(placed(1), NodeId{});  // made anew
  EXPECT_TRUE(start_of(1).restarted);
  EXPECT_EQ(last<StopActorAt>(plain_at).actor, (ActorId{7, 2}));  // its job is over
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
  service->on_join(13, "t1", description(kB, 4), now);  // its first answer was lost
  flush();
  EXPECT_EQ(out.joins.back().second, nullptr);
  start();
  EXPECT_EQ(out.admitted, (std::vector<NodeId>{kB}));
  EXPECT_TRUE(service->is_spent("t1"));  // for ever
  EXPECT_FALSE(service->is_spent("t2"));
  service->on_join(15, "t1", description(kC, 4), now);
  EXPECT_EQ(out.joins.back().second->code, Code::invalid_argument);
  join(kB, 4);
  service->on_join(14, "t3", description(kB, 4), now);
  EXPECT_EQ(out.joins.back().second->code, Code::invalid_argument);
  start();
  EXPECT_EQ(out.admitted, (std::vector<NodeId>{kB}));  // once, by its node record
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
}  // namespace troupe::control
