// ActorHost: H-1 one worker per life, H-2 restarts are counted in their window, H-3 a name has one
// living owner; and messages that are read before what they follow.
#include "troupe/runtime/agent/actors.hpp"

#include <gtest/gtest.h>

namespace troupe::agent {
namespace {

using namespace std::chrono_literals;
using wire::ActorState;

const ActorId kA{1, 1}, kB{1, 2};

struct Recorder final : ActorHost::Out {
  std::vector<ActorId> needed, released;
  std::vector<std::pair<ProcessIndex, wire::StartActor>> started;
  std::vector<ProcessIndex> ended, killed;
  std::vector<std::pair<ProcessIndex, wire::ActorUpdate>> published;
  std::vector<wire::FoundActor> answers;
  int dropped = 0;

  void need_worker(ActorId actor, const wire::Shape&) override { needed.push_back(actor); }
  void release_worker(ActorId actor) override { released.push_back(actor); }
  void start_actor(ProcessIndex worker, const wire::StartActor& start, BlobView) override {
    started.emplace_back(worker, start);
  }
  void end_worker(ProcessIndex worker) override { ended.push_back(worker); }
  void kill_worker(ProcessIndex worker) override { killed.push_back(worker); }
  void publish(ProcessIndex watcher, const wire::ActorUpdate& update) override {
    published.emplace_back(watcher, update);
  }
  void answer(ProcessIndex, const wire::FoundActor& found) override { answers.push_back(found); }
  void drop_creation(const wire::Call&) override { ++dropped; }
};

struct Host : testing::Test {
  Recorder out;
  ActorHost host{out};
  const Error died{Code::worker_died, "killed by signal 9"};

  static wire::CreateActor spec(ActorId id, const std::string& name = "", int restarts = 0) {
    wire::CreateActor message;
    message.actor = id;
    message.name = name;
    message.max_restarts = restarts;
    return message;
  }
  bool create(ActorId id, const std::string& name = "", int restarts = 0) {
    return host.create(spec(id, name, restarts), {});
  }
  void created(ActorId id, ProcessIndex worker, std::uint64_t incarnation) {
    host.created(worker, {id, incarnation, nullptr}, Time{});
  }
  void live(ActorId id, ProcessIndex worker, std::uint64_t incarnation) {
    host.worker_ready(id, worker, {});
    created(id, worker, incarnation);
  }
  ActorState state() { return host.rows().at(0).state; }
  bool found(const std::string& name) {
    host.find(1, {1, name, ""});
    return out.answers.back().found;
  }
};

TEST_F(Host, StartsOnceAndTellsItsWatchers) {
  host.watch(kA, 7, Time{});  // read before the creation
  EXPECT_TRUE(out.published.empty());
  create(kA);
  EXPECT_EQ(out.needed, std::vector<ActorId>{kA});
  host.worker_ready(kA, 3, {0, 1});
  ASSERT_EQ(out.started.size(), 1u);
  EXPECT_EQ(out.started[0].second.incarnation, 1u);
  EXPECT_FALSE(out.started[0].second.restarted);
  EXPECT_EQ(out.started[0].second.gpus, (std::vector<std::int32_t>{0, 1}));
  created(kA, 4, 1);  // not its worker
  created(kA, 3, 2);  // not its life
  EXPECT_TRUE(out.published.empty());
  created(kA, 3, 1);
  ASSERT_EQ(out.published.size(), 1u);
  EXPECT_EQ(out.published[0].first, 7u);
  EXPECT_EQ(out.published[0].second.state, ActorState::alive);
  EXPECT_EQ(out.published[0].second.worker, 3u);
  host.watch(kA, 8, Time{});
  EXPECT_EQ(out.published.back().first, 8u) << "who comes late is told at once";
  EXPECT_FALSE(host.next_deadline());
}

TEST_F(Host, RestartsExactlyAsOftenAsAllowed) {
  create(kA, "", 2);
  live(kA, 3, 1);
  host.worker_died(3, died, Time{});
  EXPECT_EQ(state(), ActorState::restarting);
  live(kA, 4, 2);
  EXPECT_TRUE(out.started.back().second.restarted);
  host.worker_died(4, died, Time{});
  live(kA, 5, 3);
  EXPECT_EQ(out.dropped, 0);
  host.worker_died(5, died, Time{});
  EXPECT_EQ(state(), ActorState::dead);
  EXPECT_EQ(out.needed.size(), 3u);
  EXPECT_EQ(out.dropped, 1) << "the constructor's arguments are let go";
}

TEST_F(Host, RestartsAreCountedInTheirWindow) {
  auto message = spec(kA, "", 1);
  message.restart_window_ns = 10'000'000'000;
  host.create(message, {});
  live(kA, 3, 1);
  host.worker_died(3, died, Time{} + 1s);
  live(kA, 4, 2);
  host.worker_died(4, died, Time{} + 12s);  // the first is 11 s ago
  EXPECT_EQ(state(), ActorState::restarting);
  live(kA, 5, 3);
  host.worker_died(5, died, Time{} + 22s);  // exactly 10 s: still counted
  EXPECT_EQ(state(), ActorState::dead);
}

TEST_F(Host, RestartsWithoutLimit) {
  create(kA, "", -1);
  for (ProcessIndex worker = 3; worker < 60; ++worker) {
    live(kA, worker, worker - 2);
    host.worker_died(worker, died, Time{});
    ASSERT_EQ(state(), ActorState::restarting);
  }
}

TEST_F(Host, AConstructorThatThrowsIsFinal) {
  create(kA, "n", 5);
  host.watch(kA, 7, Time{});
  host.worker_ready(kA, 3, {});
  ErrorInfo info;
  info.message = "bad luck";
  host.created(3, {kA, 1, std::make_shared<const ErrorInfo>(info)}, Time{});
  EXPECT_EQ(state(), ActorState::dead);
  EXPECT_NE(out.published.back().second.error->message.find("bad luck"), std::string::npos);
  EXPECT_EQ(out.dropped, 1);
  EXPECT_EQ(out.released, std::vector<ActorId>{kA});
  host.worker_died(3, died, Time{});
  EXPECT_EQ(out.published.size(), 1u) << "dead once";
  EXPECT_FALSE(found("n"));
}

TEST_F(Host, ANameHasOneLivingOwner) {
  EXPECT_TRUE(create(kA, "n"));
  EXPECT_FALSE(create(kB, "n"));
  EXPECT_TRUE(found("n"));
  EXPECT_EQ(out.answers.back().actor, kA);
  live(kA, 3, 1);
  host.kill(kA, false, Time{});
  EXPECT_EQ(out.killed, std::vector<ProcessIndex>{3});
  EXPECT_FALSE(found("n")) << "free at once, whenever the process ends";
  EXPECT_TRUE(create(kB, "n"));
  host.worker_died(3, died, Time{});
  host.unreferenced(kA);
  EXPECT_TRUE(found("n"));
  EXPECT_EQ(out.answers.back().actor, kB);
}

TEST_F(Host, KillThatMayRestartRestarts) {
  create(kA, "", 1);
  live(kA, 3, 1);
  host.kill(kA, true, Time{});
  EXPECT_EQ(state(), ActorState::alive);
  host.worker_died(3, died, Time{});
  EXPECT_EQ(state(), ActorState::restarting);
}

TEST_F(Host, AKillReadBeforeTheCreationCounts) {
  host.watch(kA, 7, Time{} + 1s);
  host.kill(kA, false, Time{} + 1s);
  EXPECT_TRUE(create(kA, "n"));
  EXPECT_TRUE(out.needed.empty());
  ASSERT_EQ(out.published.size(), 1u);
  EXPECT_EQ(out.published[0].second.state, ActorState::dead);
  EXPECT_EQ(out.dropped, 1);
  EXPECT_FALSE(found("n"));
  host.unreferenced(kA);
  EXPECT_FALSE(found("n"));
  EXPECT_TRUE(host.rows().empty());

  host.kill(kB, false, Time{} + 2s);  // by somebody who never watched
  create(kB);
  EXPECT_EQ(state(), ActorState::dead);
  EXPECT_TRUE(out.needed.empty());
}

TEST_F(Host, NobodysActorIsDeadAfterFiveSeconds) {
  host.watch(kA, 7, Time{} + 1s);
  EXPECT_EQ(host.next_deadline(), Time{} + 6s);
  host.on_timer(Time{} + 5s);
  EXPECT_TRUE(out.published.empty());
  host.on_timer(Time{} + 6s);
  ASSERT_EQ(out.published.size(), 1u);
  EXPECT_EQ(out.published[0].second.state, ActorState::dead);
  EXPECT_EQ(out.dropped, 0);
  EXPECT_FALSE(host.next_deadline());
}

TEST_F(Host, UnreferencedEndsWhatRunsAndForgetsIt) {
  create(kA, "n", 5);
  live(kA, 3, 1);
  host.unreferenced(kA);
  EXPECT_EQ(out.ended, std::vector<ProcessIndex>{3});
  EXPECT_FALSE(found("n"));
  host.worker_died(3, died, Time{});
  EXPECT_TRUE(host.rows().empty()) << "not restarted, not kept";
  EXPECT_EQ(out.dropped, 1);
}

TEST_F(Host, UnreferencedWhileRestartingIsForgottenAtOnce) {
  create(kA, "", 5);
  live(kA, 3, 1);
  host.worker_died(3, died, Time{});
  host.unreferenced(kA);
  EXPECT_TRUE(host.rows().empty());
  EXPECT_TRUE(out.ended.empty());
  const auto released = out.released.size();
  host.worker_ready(kA, 4, {});  // granted meanwhile
  EXPECT_EQ(out.released.size(), released + 1);
  EXPECT_EQ(out.started.size(), 1u);
}

TEST_F(Host, UnreferencedThenKilledOrFailedLeavesNothing) {
  create(kA);
  live(kA, 3, 1);
  host.unreferenced(kA);
  host.kill(kA, false, Time{});
  host.worker_died(3, died, Time{});
  EXPECT_TRUE(host.rows().empty());

  create(kB);
  host.worker_ready(kB, 4, {});
  host.unreferenced(kB);
  host.created(4, {kB, 1, std::make_shared<const ErrorInfo>()}, Time{});
  EXPECT_TRUE(host.rows().empty());
}

TEST_F(Host, ADetachedActorOutlivesItsHandles) {
  auto message = spec(kA, "n");
  message.detached = true;
  host.create(message, {});
  live(kA, 3, 1);
  host.unreferenced(kA);
  EXPECT_TRUE(out.ended.empty());
  EXPECT_TRUE(found("n"));
}

TEST_F(Host, NoWorkerIsADeathWithItsReason) {
  create(kA);
  host.watch(kA, 7, Time{});
  host.no_worker(kA, Error(Code::infeasible, "needs 2 GPU"));
  ASSERT_EQ(out.published.size(), 1u);
  EXPECT_EQ(out.published[0].second.error->message, "needs 2 GPU");
  host.worker_ready(kA, 3, {});
  EXPECT_TRUE(out.started.empty());
}

TEST_F(Host, TheDeadWatchNothing) {
  create(kA);
  host.watch(kA, 7, Time{});
  host.worker_died(7, died, Time{});
  live(kA, 3, 1);
  EXPECT_TRUE(out.published.empty());
}

}  // namespace
}  // namespace troupe::agent
