// Tests ActorHost. HOST-1: every life that control starts is answered, and its end is reported
// once. HOST-2: control is asked once about an actor. HOST-3: the constructor's arguments are
// released once. It also tests what the host repeats to a control that was restarted.
#include "troupe/runtime/agent/actors.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace troupe::agent::actor_host_test {
namespace {

const ActorId kA{1, 1}, kB{1, 2};
const ObjectId kLife{2, 1}, kRef{2, 2};
const NodeId kSelfNode{0, 1}, kOther{0, 2};
constexpr std::uint64_t kFirst = (std::uint64_t{1} << 32) + 1, kSecond = kFirst + 1;

struct Recorder final : ActorHost::Out, ControlPort {
  std::vector<control::ToControl> sent;
  std::vector<std::uint64_t> needed, released;
  std::vector<std::pair<ProcessIndex, wire::StartActor>> started;
  std::vector<wire::OwnedRef> refs;
  Blob payload;
  std::vector<ProcessIndex> ended, killed;
  std::vector<std::pair<ProcessIndex, wire::ActorUpdate>> published;
  std::vector<std::pair<ProcessIndex, control::ActorLocation>> remote;
  std::vector<bool> silences;  ///< whether each of them is about silence
  std::vector<std::pair<wire::FoundActor, NodeId>> answers;
  int dropped = 0;

  void send(control::ToControl message) override { sent.push_back(std::move(message)); }
  void need_worker(std::uint64_t life, const scheduling::ResourceDemand&, JobId) override {
    needed.push_back(life);
  }
  void release_worker(std::uint64_t life) override { released.push_back(life); }
  void start_actor(ProcessIndex worker, const wire::StartActor& start, BlobView bytes,
                   const std::vector<wire::OwnedRef>& owned) override {
    started.emplace_back(worker, start);
    payload.assign(bytes.begin(), bytes.end());
    refs = owned;
  }
  void end_worker(ProcessIndex worker) override { ended.push_back(worker); }
  void kill_worker(ProcessIndex worker) override { killed.push_back(worker); }
  void publish(ProcessIndex watcher, const wire::ActorUpdate& update) override {
    published.emplace_back(watcher, update);
  }
  void publish_remote(ProcessIndex watcher, const control::ActorLocation& location,
                      bool silent) override {
    silences.push_back(silent);
    remote.emplace_back(watcher, location);
  }
  void answer(ProcessIndex, const wire::FoundActor& found, NodeId owner) override {
    answers.emplace_back(found, owner);
  }
  NodeId owner_of(ObjectId) override { return kOther; }
  void drop_creation(const wire::Call&) override { ++dropped; }

  template <class Message>
  std::vector<Message> got() {
    std::vector<Message> found;
    for (auto& message : sent)
      if (auto* match = std::get_if<Message>(&message)) found.push_back(*match);
    return found;
  }
};

struct Host : testing::Test {
  Recorder out;
  ActorHost host{out, out, kSelfNode};
  const Error died{Code::worker_died, "killed by signal 9"};
  Time now = Time{} + std::chrono::seconds(1000);

  static wire::CreateActor message(ActorId id) {
    wire::CreateActor create;
    create.actor = id;
    create.lifetime = kLife;
    create.name = "n";
    create.name_space = "s";
    create.class_name = "Counter";
    create.max_restarts = 3;
    create.max_concurrency = 7;
    wire::Value value;
    value.kind = wire::Value::Kind::inline_bytes;
    value.payload_size = 3;
    value.refs = {kRef};
    create.creation.arguments = {value};
    return create;
  }
  std::shared_ptr<const control::ActorSpec> made(ActorId id = kA) {
    const Blob bytes{std::byte{1}, std::byte{2}, std::byte{3}};
    host.create(message(id), bytes, JobId{0, 9});
    return std::make_shared<const control::ActorSpec>(out.got<control::SpawnActor>().back().spec);
  }
  void reply(ActorId id, bool created) {
    control::ActorReply answer;
    answer.to = kSelfNode;
    answer.request = out.got<control::SpawnActor>().back().request;
    answer.actor = id;
    answer.created = created;
    host.replied(answer);
  }
  void order(std::shared_ptr<const control::ActorSpec> spec, std::uint64_t life = kFirst) {
    host.start({kSelfNode, 1, std::move(spec), life, life != kFirst, 2}, now);
  }
  void live(std::uint64_t life, ProcessIndex worker) {
    host.worker_ready(life, worker, {0, 1});
    host.created(worker, {kA, life, nullptr});
  }
  void locate(control::ActorState state, std::uint64_t life, NodeId node = kSelfNode,
              ActorId id = kA) {
    control::ActorLocation location;
    location.actor = id;
    location.state = state;
    location.incarnation = life;
    location.node = node;
    location.worker = 3;
    if (state == control::ActorState::dead) location.error = died.shared_info();
    host.located(location, now);
  }
};

TEST_F(Host, AnyNegativeNumberOfRestartsIsWithoutLimit) {
  wire::CreateActor create = message(kA);
  create.max_restarts = std::numeric_limits<std::int32_t>::min();
  host.create(create, Blob(3), JobId{0, 9});
  EXPECT_EQ(out.got<control::SpawnActor>().back().spec.max_restarts, -1);
}

TEST_F(Host, WhoWatchesAnActorHearsThatItsNodeIsSilent) {
  host.watch(kA, 5);
  host.silent(kOther, true);
  EXPECT_TRUE(out.remote.empty()) << "it lives nowhere so far";
  locate(control::ActorState::alive, kFirst, kOther);
  EXPECT_EQ(out.silences, std::vector<bool>{true});
  host.silent(kOther, true);
  EXPECT_EQ(out.remote.size(), 1u) << "that is no news";
  host.silent(kOther, false);
  EXPECT_EQ(out.silences, (std::vector<bool>{true, false}));
  host.silent(kSelfNode, true);
  EXPECT_EQ(out.remote.size(), 2u);
  host.silent(kOther, true);
  host.watch(kA, 6);
  ASSERT_EQ(out.remote.size(), 4u);
  EXPECT_EQ(out.remote[3].first, ProcessIndex{6});
  EXPECT_TRUE(out.silences[3]);
}

TEST_F(Host, AWindowThatNoDurationHoldsIsTheLongest) {
  wire::CreateActor create = message(kA);
  create.restart_window_ns = ~std::uint64_t{0};
  host.create(create, Blob(3), JobId{0, 9});
  EXPECT_EQ(out.got<control::SpawnActor>().back().spec.restart_window, Duration::max());
}

TEST_F(Host, WhatAProcessMakesReachesTheWorkerThatControlChooses) {
  const auto spec = made();
  EXPECT_EQ(spec->id, kA);
  EXPECT_EQ(spec->job, (JobId{0, 9}));
  EXPECT_EQ(spec->owner, kSelfNode);
  EXPECT_EQ(spec->lifetime, kLife);
  EXPECT_EQ(spec->name, "n");
  order(spec);
  EXPECT_EQ(out.needed, std::vector<std::uint64_t>{kFirst});
  host.worker_ready(kFirst, 3, {0, 1});
  ASSERT_EQ(out.started.size(), 1u);
  const wire::StartActor& start = out.started[0].second;
  EXPECT_EQ(out.started[0].first, ProcessIndex{3});
  EXPECT_EQ(start.actor, kA);
  EXPECT_EQ(start.lifetime, kLife);
  EXPECT_EQ(start.incarnation, kFirst);
  EXPECT_EQ(start.max_concurrency, 7u);
  EXPECT_FALSE(start.restarted);
  EXPECT_EQ(start.gpus, (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(start.creation.arguments.size(), 1u);
  EXPECT_EQ(out.payload.size(), 3u);
  ASSERT_EQ(out.refs.size(), 1u);
  EXPECT_EQ(out.refs[0], (wire::OwnedRef{kRef, kOther}));
  host.created(4, {kA, kFirst, nullptr});   // from a process that is not its worker
  host.created(3, {kA, kSecond, nullptr});  // about a life that is not its own
  EXPECT_FALSE(host.hosts(3, kA, kFirst));
  host.created(3, {kA, kFirst, nullptr});
  host.created(3, {kA, kFirst, nullptr});  // sent twice
  ASSERT_EQ(out.got<control::ActorStarted>().size(), 1u);
  EXPECT_EQ(out.got<control::ActorStarted>()[0].worker, ProcessIndex{3});
  EXPECT_TRUE(host.hosts(3, kA, kFirst));
  EXPECT_FALSE(host.hosts(3, kB, kFirst));
}

TEST_F(Host, ADeathIsReportedOnceWithItsReason) {
  order(made());
  live(kFirst, 3);
  host.worker_died(3, died);
  host.worker_died(3, died);
  const auto gone = out.got<control::ActorGone>();
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone[0].incarnation, kFirst);
  EXPECT_EQ(gone[0].error->message, "killed by signal 9");
  EXPECT_FALSE(gone[0].intended);
  EXPECT_EQ(out.released, std::vector<std::uint64_t>{kFirst});
  EXPECT_EQ(host.hosted(), 0u);
}

TEST_F(Host, ADeathInTheConstructorIsADeath) {
  order(made());
  host.worker_ready(kFirst, 3, {});
  host.worker_died(3, died);
  EXPECT_EQ(out.got<control::ActorGone>().size(), 1u);
  EXPECT_TRUE(out.got<control::ActorStartFailed>().empty());
}

TEST_F(Host, AConstructorThatThrowsIsAFailedStart) {
  order(made());
  host.worker_ready(kFirst, 3, {});
  ErrorInfo info;
  info.code = Code::infeasible;  // thrown by a get() in the constructor
  info.message = "bad luck";
  host.created(3, {kA, kFirst, std::make_shared<const ErrorInfo>(info)});
  const auto failed = out.got<control::ActorStartFailed>();
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].error->message, "bad luck");
  EXPECT_EQ(failed[0].error->code, Code::task_failed) << "the actor itself is not infeasible";
  EXPECT_EQ(out.released, std::vector<std::uint64_t>{kFirst});
  host.worker_died(3, died);
  EXPECT_TRUE(out.got<control::ActorGone>().empty()) << "dead once";
}

TEST_F(Host, NoWorkerIsAFailedStartWithItsSentence) {
  order(made());
  host.no_worker(kFirst, Error(Code::infeasible, "needs 2 GPU"));
  ASSERT_EQ(out.got<control::ActorStartFailed>().size(), 1u);
  EXPECT_EQ(out.got<control::ActorStartFailed>()[0].error->code, Code::infeasible);
  host.worker_ready(kFirst, 3, {});  // granted meanwhile: released
  EXPECT_TRUE(out.started.empty());
  EXPECT_EQ(out.released.size(), 2u);
}

// The worker of a life dies before the host has been told that the life has it. The host must ask
// for another worker: else the life would wait for its constructor for ever.
TEST_F(Host, AWorkerThatEndsBeforeTheLifeHasItIsReplacedByAnother) {
  order(made());
  host.worker_died(3, died);
  host.worker_ended_early(kFirst);
  EXPECT_EQ(out.needed, (std::vector<std::uint64_t>{kFirst, kFirst}));
  EXPECT_TRUE(out.got<control::ActorGone>().empty()) << "no restart is used up";
  live(kFirst, 4);
  EXPECT_TRUE(host.hosts(4, kA, kFirst));
  host.worker_died(4, died);
  host.worker_ended_early(kFirst);
  EXPECT_EQ(out.needed.size(), 2u) << "nobody is left who needs one";
}

TEST_F(Host, ACreationThatCannotBeReadIsAFailedStart) {
  auto spec = std::make_shared<control::ActorSpec>(*made());
  spec->creation = "damaged";
  order(spec);
  host.worker_ready(kFirst, 3, {});
  ASSERT_EQ(out.got<control::ActorStartFailed>().size(), 1u);
  EXPECT_TRUE(out.got<control::ActorStartFailed>()[0].error);
  EXPECT_TRUE(out.started.empty());
}

TEST_F(Host, StopsEndOrKillAndAreReportedAsDeaths) {
  const auto spec = made();
  order(spec);
  live(kFirst, 3);
  host.stop({kSelfNode, 1, kA, kFirst, true, "its last handle is gone"}, now);
  EXPECT_EQ(out.ended, std::vector<ProcessIndex>{3});
  host.worker_died(3, died);
  EXPECT_TRUE(out.got<control::ActorGone>().at(0).intended);
  order(spec, kSecond);
  live(kSecond, 4);
  EXPECT_TRUE(out.started.back().second.restarted);
  host.stop({kSelfNode, 1, kA, kFirst, false, "it was killed"}, now);  // for the life before
  EXPECT_TRUE(out.killed.empty());
  host.stop({kSelfNode, 1, kA, kSecond, false, "it was killed"}, now);
  EXPECT_EQ(out.killed, std::vector<ProcessIndex>{4});
  host.worker_died(4, died);
  EXPECT_FALSE(out.got<control::ActorGone>().at(1).intended) << "it may be restarted";
  order(spec, kSecond + 1);
  host.stop({kSelfNode, 1, kA, kSecond + 1, false, "it was killed"}, now);  // has no worker yet
  EXPECT_EQ(out.got<control::ActorGone>().size(), 3u);
  EXPECT_EQ(out.released.back(), kSecond + 1);
  EXPECT_EQ(host.hosted(), 0u);
}

TEST_F(Host, AnActorThatDoesNotEndIsKilledInTime) {
  order(made());
  live(kFirst, 3);
  EXPECT_EQ(host.next_deadline(), Time::max());
  host.stop({kSelfNode, 1, kA, kFirst, true, "its last handle is gone"}, now);
  EXPECT_EQ(out.ended, std::vector<ProcessIndex>{3});
  EXPECT_EQ(host.next_deadline(), now + ActorHost::kEndGrace);
  now += std::chrono::seconds(4);
  host.stop({kSelfNode, 1, kA, kFirst, true, "its last handle is gone"}, now);  // sent again
  EXPECT_EQ(host.next_deadline(), now + ActorHost::kEndGrace - std::chrono::seconds(4));
  now += ActorHost::kEndGrace - std::chrono::seconds(5);
  host.on_tick(now);
  EXPECT_TRUE(out.killed.empty());
  now += std::chrono::seconds(1);
  host.on_tick(now);
  EXPECT_EQ(out.killed, std::vector<ProcessIndex>{3});
  EXPECT_EQ(host.next_deadline(), Time::max()) << "once is enough";
  host.worker_died(3, died);
  ASSERT_EQ(out.got<control::ActorGone>().size(), 1u);
  EXPECT_TRUE(out.got<control::ActorGone>().at(0).intended) << "no other life follows";
  EXPECT_EQ(out.released, std::vector<std::uint64_t>{kFirst}) << "what it had is free";
}

TEST_F(Host, AnAnswerThatNamesAnActorWhichIsEndingIsAskedForAgain) {
  (void)made();
  reply(kA, true);
  host.unreferenced(kA);
  const auto asked = [&] { return out.got<control::SpawnActor>().size(); };
  const auto spawn = [&](ActorId actor) {
    wire::CreateActor create = message(actor);
    create.get_if_exists = true;
    create.request = 5;
    host.create(create, {}, JobId{0, 9}, 4);
  };
  const auto answered = [&](ActorId actor) {
    control::ActorReply answer;
    answer.request = out.got<control::SpawnActor>().back().request;
    answer.actor = actor;
    answer.owner = kSelfNode;
    answer.created = actor == kB;
    host.replied(answer);
  };
  spawn(kB);
  ASSERT_EQ(asked(), 2u);
  answered(kA);  // control has not read that the actor has no holder
  EXPECT_EQ(asked(), 3u);
  EXPECT_TRUE(out.answers.empty());
  answered(kB);
  EXPECT_EQ(asked(), 3u);
  ASSERT_EQ(out.answers.size(), 1u);
  EXPECT_EQ(out.answers[0].first.actor, kB);

  host.find(4, {6, "n", "s"});
  const auto found = [&](ActorId actor) {
    control::ActorReply answer;
    answer.request = out.got<control::FindActor>().back().request;
    answer.actor = actor;
    answer.owner = kSelfNode;
    host.replied(answer);
  };
  found(kA);
  EXPECT_EQ(out.got<control::FindActor>().size(), 2u);
  EXPECT_EQ(out.answers.size(), 1u);
  found(ActorId{});
  ASSERT_EQ(out.answers.size(), 2u);
  EXPECT_FALSE(out.answers[1].first.found);
}

TEST_F(Host, TwoLivesOfOneActorAreApart) {
  const auto spec = made();
  order(spec, kFirst);
  live(kFirst, 3);
  order(spec, kSecond);  // control takes the first life for dead
  order(spec, kSecond);  // sent twice
  EXPECT_EQ(out.needed.size(), 2u);
  live(kSecond, 4);
  host.worker_died(3, died);
  EXPECT_EQ(out.got<control::ActorGone>().at(0).incarnation, kFirst);
  EXPECT_TRUE(host.hosts(4, kA, kSecond));
}

TEST_F(Host, ControlIsAskedOnceAndAllWatchersAreTold) {
  host.watch(kA, 7);
  host.watch(kA, 8);
  EXPECT_EQ(out.got<control::WatchActor>().size(), 1u);
  locate(control::ActorState::placing, kFirst);
  EXPECT_TRUE(out.published.empty()) << "nothing has changed for them";
  locate(control::ActorState::alive, kFirst);
  ASSERT_EQ(out.published.size(), 2u);
  EXPECT_EQ(out.published[1].first, ProcessIndex{8});
  EXPECT_EQ(out.published[1].second.state, wire::ActorState::alive);
  EXPECT_EQ(out.published[1].second.worker, ProcessIndex{3});
  host.watch(kA, 9);
  EXPECT_EQ(out.published.back().first, ProcessIndex{9}) << "who comes late is told at once";
  locate(control::ActorState::pending, 0);  // from a control that does not know the actor yet
  EXPECT_EQ(out.published.size(), 3u);
  locate(control::ActorState::restarting, kSecond);
  EXPECT_EQ(out.published.size(), 6u);
  EXPECT_EQ(out.published.back().second.state, wire::ActorState::pending);
  EXPECT_EQ(out.published.back().second.incarnation, kSecond);
  locate(control::ActorState::alive, kSecond, kOther);
  EXPECT_EQ(out.published.size(), 6u);
  ASSERT_EQ(out.remote.size(), 3u);
  EXPECT_EQ(out.remote[0].second.node, kOther);
  locate(control::ActorState::dead, kSecond);
  EXPECT_EQ(out.published.back().second.state, wire::ActorState::dead);
  EXPECT_EQ(out.published.back().second.error->message, "killed by signal 9");
  EXPECT_EQ(host.watched(), 0u);
  host.watch(kA, 10);
  EXPECT_EQ(out.got<control::WatchActor>().size(), 2u) << "control remembers the dead";
}

TEST_F(Host, TheDeadWatchNothing) {
  host.watch(kA, 7);
  host.watch(kB, 7);
  host.watch(kB, 8);
  host.worker_died(7, died);
  ASSERT_EQ(out.got<control::WatchActor>().size(), 3u);
  EXPECT_EQ(out.got<control::WatchActor>()[2].actor, kA);
  EXPECT_FALSE(out.got<control::WatchActor>()[2].on);
  locate(control::ActorState::alive, kFirst, kSelfNode, kB);
  ASSERT_EQ(out.published.size(), 1u);
  EXPECT_EQ(out.published[0].first, ProcessIndex{8});
}

TEST_F(Host, TheArgumentsAreHeldUntilTheActorIsDead) {
  made();
  reply(kA, true);
  EXPECT_EQ(out.got<control::WatchActor>().size(), 1u);
  host.watch(kA, 7);
  host.worker_died(7, died);
  EXPECT_EQ(host.watched(), 1u) << "its maker watches it";
  locate(control::ActorState::alive, kFirst);
  host.unreferenced(kA);
  EXPECT_EQ(out.got<control::HandlesGone>().size(), 1u);
  EXPECT_EQ(out.dropped, 0);
  locate(control::ActorState::dead, kFirst);
  EXPECT_EQ(out.dropped, 1);
  host.unreferenced(kA);
  EXPECT_EQ(out.got<control::HandlesGone>().size(), 1u);
}

TEST_F(Host, ANameOfAnotherLetsTheArgumentsGo) {
  made();
  reply(kB, false);
  EXPECT_EQ(out.dropped, 1);
  EXPECT_EQ(host.watched(), 0u);
  host.unreferenced(kA);
  EXPECT_TRUE(out.got<control::HandlesGone>().empty()) << "there is no such actor";
}

TEST_F(Host, WhatControlRefusesIsDeadForWhoWaits) {
  made();
  host.watch(kA, 7);
  control::ActorReply answer;
  answer.request = out.got<control::SpawnActor>().back().request;
  answer.error = Error(Code::unavailable, "control's disk is full").shared_info();
  host.replied(answer);
  ASSERT_EQ(out.published.size(), 1u);
  EXPECT_EQ(out.published[0].second.state, wire::ActorState::dead);
  EXPECT_EQ(out.published[0].second.error->message, "control's disk is full");
  EXPECT_EQ(out.dropped, 1);
}

TEST_F(Host, ADetachedActorOutlivesItsHandles) {
  auto create = message(kA);
  create.detached = true;
  host.create(create, Blob(3), JobId{});
  host.unreferenced(kA);
  EXPECT_TRUE(out.got<control::HandlesGone>().empty());
}

TEST_F(Host, FindsAreAnsweredToWhoAsked) {
  host.find(7, {5, "n", "s"});
  const auto asked = out.got<control::FindActor>();
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].name, "n");
  EXPECT_EQ(asked[0].name_space, "s");
  control::ActorReply answer;
  answer.request = asked[0].request;
  answer.actor = kA;
  answer.lifetime = kLife;
  answer.owner = kOther;
  answer.class_name = "Counter";
  host.replied(answer);
  host.replied(answer);  // answered once
  ASSERT_EQ(out.answers.size(), 1u);
  EXPECT_TRUE(out.answers[0].first.found);
  EXPECT_EQ(out.answers[0].first.request, 5u);
  EXPECT_EQ(out.answers[0].first.lifetime, kLife);
  EXPECT_EQ(out.answers[0].second, kOther);
}

TEST_F(Host, AControlThatWasRestartedIsToldAndAskedAgain) {
  const auto spec = made();
  reply(kA, true);
  order(spec);
  live(kFirst, 3);
  order(spec, kSecond);  // is being started
  made(kB);              // without an answer from control
  host.unreferenced(kA);
  host.kill(kB, false);
  host.find(7, {5, "n", "s"});
  out.sent.clear();
  host.registered(4, 2, 0, now);
  ASSERT_EQ(out.got<control::SpawnActor>().size(), 2u) << "neither is known to live";
  EXPECT_EQ(out.got<control::SpawnActor>()[1].spec.id, kB);
  const auto hosts = out.got<control::NodeHosts>();
  ASSERT_EQ(hosts.size(), 1u);
  EXPECT_EQ(hosts[0].epoch, 4u);
  EXPECT_EQ(hosts[0].control_epoch, 2u);
  ASSERT_EQ(hosts[0].actors.size(), 2u);
  EXPECT_EQ(hosts[0].actors[0].incarnation, kFirst);
  EXPECT_NE(hosts[0].actors[0].worker, ProcessIndex{});
  EXPECT_EQ(hosts[0].actors[1].incarnation, kSecond);
  EXPECT_EQ(hosts[0].actors[1].worker, ProcessIndex{})
      << "a control that knows nothing must not stop it";
  EXPECT_EQ(hosts[0].actors[0].restarts, 2u);
  EXPECT_EQ(out.got<control::WatchActor>().size(), 2u);
  EXPECT_EQ(out.got<control::HandlesGone>().size(), 1u);
  EXPECT_EQ(out.got<control::KillActor>().size(), 1u);
  EXPECT_EQ(out.got<control::FindActor>().size(), 1u);

  const auto needed = out.needed.size();
  host.start({kSelfNode, 4, spec, kSecond + 5, false, 0}, now);  // from the control before this one
  host.start({kSelfNode, 3, spec, (std::uint64_t{2} << 32) + 1, false, 0}, now);  // an older epoch
  EXPECT_EQ(out.got<control::ActorStartFailed>().size(), 2u);
  EXPECT_FALSE(out.got<control::ActorStartFailed>()[0].error) << "it is placed again";
  EXPECT_EQ(out.needed.size(), needed);
  host.start({kSelfNode, 4, spec, (std::uint64_t{2} << 32) + 1, false, 0}, now);
  EXPECT_EQ(out.needed.size(), needed + 1);
}

TEST_F(Host, AKillThatMayBeFollowedByARestartIsSaidAgainUntilThatLifeIsOver) {
  host.registered(1, 1, 0, now);
  const auto said = [&] {
    out.sent.clear();
    host.registered(1, 2, 0, now);
    return out.got<control::KillActor>();
  };
  host.kill(kA, true);
  EXPECT_TRUE(out.got<control::KillActor>().empty()) << "nobody here knows which life that is";
  EXPECT_EQ(out.got<control::WatchActor>().size(), 1u);
  locate(control::ActorState::placing, kFirst, {});
  EXPECT_EQ(out.got<control::KillActor>().size(), 1u);
  for (int control = 0; control < 2; ++control) {
    const auto kills = said();
    ASSERT_EQ(kills.size(), 1u);
    EXPECT_TRUE(kills[0].may_restart);
    EXPECT_EQ(kills[0].life, kFirst);
    locate(control::ActorState::alive, kFirst, kOther);  // control has not read this yet
  }
  EXPECT_EQ(host.watched(), 1u) << "nobody watches it but for the kill";
  locate(control::ActorState::restarting, kSecond, {});
  EXPECT_TRUE(said().empty()) << "it would end the life that followed";
  locate(control::ActorState::alive, kSecond, kOther);
  EXPECT_EQ(host.watched(), 0u);

  host.watch(kA, 7);
  locate(control::ActorState::alive, kSecond, kOther);
  out.sent.clear();
  host.kill(kA, true);
  ASSERT_EQ(out.got<control::KillActor>().size(), 1u);
  EXPECT_EQ(out.got<control::KillActor>()[0].life, kSecond);
  locate(control::ActorState::dead, kSecond);
  EXPECT_TRUE(said().empty());
  EXPECT_EQ(host.watched(), 0u);
}

TEST_F(Host, AKillIsSaidInTheNameOfItsJobAndNotAgainOnceRefused) {
  constexpr JobId kMine{1, 1}, kTheirs{1, 2};
  host.registered(1, 1, 0, now);
  host.watch(kA, 7);
  host.watch(kA, 8);
  locate(control::ActorState::alive, kFirst, kOther);
  for (const bool may_restart : {true, false}) {
    out.sent.clear();
    out.published.clear();
    host.kill(kA, may_restart, 8, kTheirs);
    host.kill(kA, may_restart, 7, kMine);
    const auto kills = out.got<control::KillActor>();
    ASSERT_EQ(kills.size(), 2u);
    EXPECT_EQ(kills[0].job, kTheirs);
    EXPECT_EQ(kills[1].job, kMine);
    control::ActorReply answer;
    answer.request = kills[0].request;
    answer.error = Error(Code::unavailable, "not registered").shared_info();
    host.replied(answer);
    out.sent.clear();
    host.registered(1, 2, 0, now);
    EXPECT_EQ(out.got<control::KillActor>().size(), 2u) << "it was not judged";
    out.published.clear();
    answer.error = Error(Code::invalid_argument, "another's").shared_info();
    host.replied(answer);
    ASSERT_EQ(out.published.size(), 1u);
    EXPECT_EQ(out.published[0].first, ProcessIndex{8});
    EXPECT_EQ(out.published[0].second.state, wire::ActorState::dead) << "of what it hears no more";
    out.sent.clear();
    host.registered(1, 2, 0, now);
    ASSERT_EQ(out.got<control::KillActor>().size(), 1u);
    EXPECT_EQ(out.got<control::KillActor>()[0].job, kMine);
    host.watch(kA, 8);
  }
  locate(control::ActorState::dead, kFirst);
  out.sent.clear();
  host.registered(1, 2, 0, now);
  EXPECT_TRUE(out.got<control::KillActor>().empty());
}

TEST_F(Host, WhoEndsALifeHearsWhichOneBeforeItHearsThatOneIsAlive) {
  host.registered(1, 1, 0, now);
  const auto said_to = [&](ProcessIndex process) {
    std::vector<std::pair<wire::ActorState, std::uint64_t>> said;
    for (const auto& [watcher, update] : out.published)
      if (watcher == process) said.emplace_back(update.state, update.incarnation);
    return said;
  };
  host.watch(kA, 7);
  host.kill(kA, true, 7);
  EXPECT_TRUE(said_to(7).empty()) << "nobody here knows which life that is";
  locate(control::ActorState::alive, kFirst, kSelfNode);
  ASSERT_EQ(said_to(7).size(), 2u);
  EXPECT_EQ(said_to(7)[0], std::pair(wire::ActorState::restarting, kFirst));
  EXPECT_EQ(said_to(7)[1], std::pair(wire::ActorState::alive, kFirst));
  out.published.clear();
  host.kill(kA, true, 8);
  ASSERT_EQ(said_to(8).size(), 1u) << "known now: it is answered at once";
  EXPECT_EQ(said_to(8)[0], std::pair(wire::ActorState::restarting, kFirst));
  EXPECT_TRUE(said_to(7).empty());
}

TEST_F(Host, AnEndIsSaidAgainUntilWhatFollowsFromItIsHeard) {
  host.registered(1, 1, 0, now);
  order(made());
  live(kFirst, 3);
  out.sent.clear();
  host.worker_died(3, died);  // control dies after its machine has received this message
  EXPECT_EQ(out.got<control::ActorGone>().size(), 1u);
  EXPECT_EQ(out.got<control::WatchActor>().size(), 1u);
  for (const Epoch control : {2, 3}) {
    out.sent.clear();
    host.registered(1, control, 0, now);
    const auto hosts = out.got<control::NodeHosts>();
    ASSERT_EQ(hosts.size(), 1u);
    ASSERT_EQ(hosts[0].actors.size(), 1u);
    EXPECT_TRUE(hosts[0].actors[0].ended);
    EXPECT_EQ(hosts[0].actors[0].incarnation, kFirst);
    EXPECT_EQ(hosts[0].actors[0].worker, ProcessIndex{3}) << "it had started";
    EXPECT_EQ(hosts[0].actors[0].restarts, 2u);
    ASSERT_EQ(out.got<control::ActorGone>().size(), 1u);
    EXPECT_EQ(out.got<control::ActorGone>()[0].error->message, "killed by signal 9");
  }
  locate(control::ActorState::alive, kFirst, kSelfNode);  // control has not read of its death
  out.sent.clear();
  host.registered(1, 4, 0, now);
  EXPECT_EQ(out.got<control::ActorGone>().size(), 1u);
  locate(control::ActorState::alive, kSecond, kOther);
  out.sent.clear();
  host.registered(1, 5, 0, now);
  EXPECT_TRUE(out.got<control::ActorGone>().empty());
  EXPECT_TRUE(out.got<control::NodeHosts>().at(0).actors.empty());
}

TEST_F(Host, ALifeOlderThanTheWindowHasNoRestartsBehindIt) {
  auto spec = std::make_shared<control::ActorSpec>(*made());
  const auto told = [&] {
    out.sent.clear();
    host.registered(1, 1, 0, now);
    return out.got<control::NodeHosts>().at(0).actors.at(0).restarts;
  };
  spec->restart_window = std::chrono::seconds(60);
  order(spec);
  now += std::chrono::seconds(60);
  EXPECT_EQ(told(), 2u) << "it is still being made";
  live(kFirst, 3);
  EXPECT_EQ(told(), 0u);
  order(spec, kSecond);
  live(kSecond, 4);
  host.worker_died(3, died);
  host.worker_died(4, died);
  now += std::chrono::seconds(59);
  EXPECT_EQ(told(), 2u);
  now += std::chrono::seconds(1);
  EXPECT_EQ(told(), 0u) << "also of one that has ended";
  spec->restart_window = Duration::zero();  // no window: all restarts count
  EXPECT_EQ(told(), 2u);
}

TEST_F(Host, OfSeveralEndsOnlyTheLastIsKept) {
  const auto spec = made();
  for (std::uint64_t life = kFirst; life < kFirst + 5; ++life) {  // the constructor dies
    order(spec, life);
    host.worker_ready(life, 3, {});
    host.worker_died(3, died);
  }
  out.sent.clear();
  host.registered(1, 1, 0, now);
  ASSERT_EQ(out.got<control::NodeHosts>().at(0).actors.size(), 1u);
  EXPECT_EQ(out.got<control::NodeHosts>()[0].actors[0].incarnation, kFirst + 4);
  ASSERT_EQ(out.got<control::ActorGone>().size(), 1u);
  EXPECT_EQ(out.got<control::ActorGone>()[0].incarnation, kFirst + 4);
}

TEST_F(Host, TheFateOfWhatEndedHereIsWatchedUntilItIsKnownAndNoLonger) {
  auto spec = std::make_shared<control::ActorSpec>(*made());
  spec->id = kB;  // created on another node
  order(spec);
  host.worker_ready(kFirst, 3, {});
  host.worker_died(3, died);
  EXPECT_EQ(out.got<control::WatchActor>().back().actor, kB);
  locate(control::ActorState::alive, kSecond, kOther, kB);
  EXPECT_FALSE(out.got<control::WatchActor>().back().on);
  EXPECT_EQ(host.watched(), 0u);
}

TEST_F(Host, ControlIsToldWhenNoControlAfterItWillHearOfAnEnd) {
  order(made());
  live(kFirst, 3);
  host.watch(kA, 7);  // another process of this node watches the actor too, also for later changes
  host.worker_died(3, died);
  locate(control::ActorState::alive, kSecond, kOther);
  EXPECT_TRUE(out.got<control::WatchActor>().back().on);
  locate(control::ActorState::dead, kSecond, {});
  EXPECT_FALSE(out.got<control::WatchActor>().back().on);
  host.watch(kB, 7);
  locate(control::ActorState::dead, kSecond, {}, kB);
  EXPECT_TRUE(out.got<control::WatchActor>().back().on) << "it never was here: no word more";
}

TEST_F(Host, AnotherControlHearsOfAKillBeforeTheSpawnThatItWouldCarryOutAgain) {
  host.registered(4, 1, 0, now);
  made();  // the answer is lost with control, which has begun a life of the actor and ended it
  host.kill(kA, false);
  out.sent.clear();
  host.registered(4, 2, 0, now);
  const auto at = [&](auto is) {
    return std::find_if(out.sent.begin(), out.sent.end(), is) - out.sent.begin();
  };
  const auto killed = at([](auto& m) { return std::holds_alternative<control::KillActor>(m); });
  const auto spawned = at([](auto& m) { return std::holds_alternative<control::SpawnActor>(m); });
  ASSERT_LT(spawned, static_cast<std::ptrdiff_t>(out.sent.size()));
  EXPECT_LT(killed, spawned);
}

TEST_F(Host, TheEndOfALifeThatWasStoppedForGoodIsIntendedWhoeverHearsOfIt) {
  order(made());
  live(kFirst, 3);
  control::StopActorAt stop{kSelfNode, 1, kA, kFirst, false, "it was killed", true};
  host.stop(stop, now);
  EXPECT_EQ(out.killed, std::vector<ProcessIndex>{3});
  host.worker_died(3, died);
  EXPECT_TRUE(out.got<control::ActorGone>().at(0).intended)
      << "a control that does not know of the kill would make it anew";
}

TEST_F(Host, WhatWasMadeIsAskedForAgainUntilItLives) {
  host.registered(4, 1, 0, now);
  made();
  reply(kA, true);  // control dies before it sends the order to start the actor
  out.sent.clear();
  host.registered(4, 1, 0, now);
  EXPECT_FALSE(out.got<control::SpawnActor>().at(0).again) << "the same control knows";
  host.registered(4, 2, 0, now);
  EXPECT_TRUE(out.got<control::SpawnActor>().at(1).again);
  reply(kA, true);
  EXPECT_EQ(out.dropped, 0);
  locate(control::ActorState::alive, kFirst, kOther);
  out.sent.clear();
  host.registered(4, 3, 0, now);
  EXPECT_TRUE(out.got<control::SpawnActor>().empty());
}

TEST_F(Host, AnActorThatWasLostWithItsNameIsDead) {
  made();
  reply(kA, true);
  host.watch(kA, 7);
  reply(kB, false);  // from the next control: another actor has the name now
  ASSERT_EQ(out.published.size(), 1u);
  EXPECT_EQ(out.published[0].second.state, wire::ActorState::dead);
  EXPECT_EQ(out.published[0].second.error->code, Code::actor_died);
  EXPECT_EQ(out.dropped, 1);
}

TEST_F(Host, WhoMakesANamedActorIsToldWhoHasTheNameOrWhyNobody) {
  auto create = message(kA);
  create.request = 11;
  host.create(create, {}, JobId{0, 9}, 7);
  reply(kB, false);
  ASSERT_EQ(out.answers.size(), 1u);
  EXPECT_EQ(out.answers[0].first.request, 11u);
  EXPECT_TRUE(out.answers[0].first.found);
  EXPECT_EQ(out.answers[0].first.actor, kB);
  create.actor = ActorId{1, 3};
  create.request = 12;
  host.create(create, {}, JobId{0, 9}, 7);
  control::ActorReply answer;
  answer.request = out.got<control::SpawnActor>().back().request;
  answer.error = Error(Code::no_space, "control's disk is full").shared_info();
  host.replied(answer);
  ASSERT_EQ(out.answers.size(), 2u);
  EXPECT_FALSE(out.answers[1].first.found);
  ASSERT_TRUE(out.answers[1].first.error);
  EXPECT_EQ(out.answers[1].first.error->code, Code::no_space);
}

TEST_F(Host, WhatIsMadeWhenItIsSaidAgainAfterARefusalIsEnded) {
  const auto refuse = [&] {
    control::ActorReply answer;
    answer.request = out.got<control::SpawnActor>().back().request;
    answer.error = Error(Code::invalid_argument, "the name is taken").shared_info();
    host.replied(answer);
  };
  host.registered(4, 1, 0, now);
  made();
  refuse();
  EXPECT_TRUE(out.got<control::KillActor>().empty()) << "it was said once";
  out.sent.clear();
  made();  // after the connection was lost, and before this node has registered again
  host.registered(4, 1, 0, now);
  refuse();  // the name is free when the second request arrives
  ASSERT_EQ(out.got<control::KillActor>().size(), 1u);
  EXPECT_EQ(out.got<control::KillActor>()[0].actor, kA);
  EXPECT_FALSE(out.got<control::KillActor>()[0].may_restart);
  out.sent.clear();
  locate(control::ActorState::dead, kFirst);
  EXPECT_EQ(host.watched(), 0u);
  ASSERT_EQ(out.got<control::WatchActor>().size(), 1u) << "control waits for whoever asked for it";
  EXPECT_FALSE(out.got<control::WatchActor>()[0].on);
}

TEST_F(Host, WhoMakesAnActorIsAnsweredAlsoByTheNewsOfItsLifeOrDeath) {
  for (const auto state : {control::ActorState::alive, control::ActorState::dead}) {
    auto create = message(kA);
    create.request = 11;
    host.create(create, {}, JobId{0, 9}, 7);
    host.watch(kA, 8);
    locate(state, kFirst);  // from a control that has not answered the creation
    reply(kA, true);
    ASSERT_EQ(out.answers.size(), 1u);
    EXPECT_EQ(out.answers[0].first.request, 11u);
    EXPECT_TRUE(out.answers[0].first.found);
    EXPECT_EQ(out.answers[0].first.actor, kA);
    EXPECT_EQ(out.answers[0].first.class_name, "Counter");
    EXPECT_EQ(out.answers[0].first.lifetime, kLife);
    EXPECT_EQ(out.answers[0].second, kSelfNode);
    out.answers.clear();
    out.sent.clear();
    host.registered(4, 2, 0, now);
    EXPECT_TRUE(out.got<control::SpawnActor>().empty());
    if (state == control::ActorState::alive) locate(control::ActorState::dead, kFirst);
  }
}

TEST_F(Host, ControlIsNotAskedAboutAnActorThatItMayNotHaveBeenAskedToMake) {
  made();
  host.control_lost();
  host.watch(kA, 5);
  EXPECT_TRUE(out.got<control::WatchActor>().empty()) << "it knows nothing of the actor";
  host.watch(kB, 5);
  EXPECT_EQ(out.got<control::WatchActor>().size(), 1U) << "somebody else makes that one";
  host.registered(1, 1, 1, now);
  ASSERT_TRUE(std::holds_alternative<control::SpawnActor>(out.sent.at(2)));
  EXPECT_EQ(out.got<control::WatchActor>().size(), 3U) << "what was held back is said, too";
}

TEST_F(Host, AllThatIsHostedIsToldInMessagesThatALinkTakes) {
  constexpr std::uint64_t kActors = 300;
  auto spec = std::make_shared<control::ActorSpec>(*made());
  spec->creation.resize(16 << 10);
  for (std::uint64_t i = 0; i < kActors; ++i) {
    auto one = std::make_shared<control::ActorSpec>(*spec);
    one->id = ActorId{3, i};
    order(one, kFirst + i);
  }
  out.sent.clear();
  host.registered(4, 2, 5, now);
  const auto pages = out.got<control::NodeHosts>();
  EXPECT_GT(pages.size(), 4u);
  std::uint64_t actors = 0;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    EXPECT_EQ(pages[i].page, i);
    EXPECT_EQ(pages[i].number, 5u);
    EXPECT_EQ(pages[i].more, i + 1 < pages.size());
    EXPECT_LT(encode(control::ToControl(pages[i])).size(), std::size_t{1} << 20);
    for (const control::HostedActor& hosted : pages[i].actors)
      EXPECT_EQ(hosted.incarnation, kFirst + actors++);
  }
  EXPECT_EQ(actors, kActors);
}

}  // namespace
}  // namespace troupe::agent::actor_host_test
