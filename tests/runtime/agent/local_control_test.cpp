// Tests a private node: ActorHost with the Directory inside it. Together they give what users see
// of actors: restarts up to the limit, names that are free after the death, messages in order,
// and an end with the last handle.
#include "troupe/runtime/agent/local_control.hpp"
#include "troupe/runtime/agent/actors.hpp"

#include <gtest/gtest.h>

namespace troupe::agent::local_control_test {
namespace {

using namespace std::chrono_literals;
using wire::ActorState;

const ActorId kA{1, 1}, kB{1, 2};
const NodeId kNode{0, 1};
constexpr ProcessIndex kDriver = 7;

struct Recorder final : ActorHost::Out {
  std::vector<std::uint64_t> needed, released;
  std::vector<ProcessIndex> ended, killed;
  std::vector<wire::ActorUpdate> published;
  std::vector<wire::FoundActor> answers;
  int started = 0, dropped = 0, remote = 0;

  void need_worker(std::uint64_t life, const scheduling::ResourceDemand&, JobId) override {
    needed.push_back(life);
  }
  void release_worker(std::uint64_t life) override { released.push_back(life); }
  void start_actor(ProcessIndex, const wire::StartActor&, BlobView,
                   const std::vector<wire::OwnedRef>&) override {
    ++started;
  }
  void end_worker(ProcessIndex worker) override { ended.push_back(worker); }
  void kill_worker(ProcessIndex worker) override { killed.push_back(worker); }
  void publish(ProcessIndex, const wire::ActorUpdate& update) override {
    published.push_back(update);
  }
  void publish_remote(ProcessIndex, const control::ActorLocation&, bool) override { ++remote; }
  void answer(ProcessIndex, const wire::FoundActor& found, NodeId) override {
    answers.push_back(found);
  }
  NodeId owner_of(ObjectId) override { return kNode; }
  void drop_creation(const wire::Call&) override { ++dropped; }
};

struct PrivateNode : testing::Test {
  Recorder out;
  LocalControl control{kNode};
  ActorHost host{out, control, kNode};
  const Error died{Code::worker_died, "killed by signal 9"};
  Time now = Time{} + 100s;
  bool job_ended = false;

  /// Handles control's answers as the agent's loop does.
  void turn() {
    bool more = true;
    while (more) {
      auto answers = control.poll(now);
      more = !answers.empty();
      for (auto& answer : answers) {
        if (const auto* start = std::get_if<control::StartActorAt>(&answer))
          host.start(*start, now);
        if (const auto* stop = std::get_if<control::StopActorAt>(&answer)) host.stop(*stop, now);
        job_ended |= std::holds_alternative<control::JobEnded>(answer);
        if (const auto* reply = std::get_if<control::ActorReply>(&answer)) host.replied(*reply);
        if (const auto* at = std::get_if<control::ActorLocation>(&answer)) host.located(*at, now);
      }
    }
    EXPECT_FALSE(control.pending());
  }
  void create(ActorId id, const std::string& name = "", int restarts = 0, bool detached = false) {
    wire::CreateActor message;
    message.actor = id;
    message.name = name;
    message.class_name = "Counter";
    message.max_restarts = restarts;
    message.restart_window_ns = 10'000'000'000;
    message.detached = detached;
    host.create(message, {}, {});
    turn();
  }
  void watch(ActorId id) {
    host.watch(id, kDriver);
    turn();
  }
  /// Brings up the life that is due, in this process.
  void live(ActorId id, ProcessIndex worker) {
    if (control.next_deadline()) wait_for_timer();  // for the pause before this life
    host.worker_ready(out.needed.back(), worker, {});
    host.created(worker, {id, out.needed.back(), nullptr});
    turn();
  }
  void die(ProcessIndex worker) {
    host.worker_died(worker, died);
    turn();
  }
  void kill(ActorId id, bool may_restart = false) {
    host.kill(id, may_restart);
    turn();
  }
  void unreferenced(ActorId id) {
    host.unreferenced(id);
    turn();
  }
  void wait_for_timer() {
    ASSERT_TRUE(control.next_deadline());
    now = *control.next_deadline();
    turn();
  }
  const wire::ActorUpdate& last() { return out.published.at(out.published.size() - 1); }
  std::string why() { return last().error ? last().error->message : ""; }
  bool found(const std::string& name) {
    host.find(kDriver, {1, name, ""});
    turn();
    return out.answers.at(out.answers.size() - 1).found;
  }
};

TEST_F(PrivateNode, StartsOnceAndTellsWhoAskedBeforeItWasMade) {
  watch(kA);
  EXPECT_TRUE(out.published.empty());
  create(kA);
  ASSERT_EQ(out.needed.size(), 1u);
  live(kA, 3);
  ASSERT_EQ(out.published.size(), 1u);
  EXPECT_EQ(last().state, ActorState::alive);
  EXPECT_EQ(last().worker, ProcessIndex{3});
  EXPECT_FALSE(control.next_deadline());
  EXPECT_EQ(out.remote, 0);
}

TEST_F(PrivateNode, AJobIsOverWhenItsActorsHaveEnded) {
  create(kA);
  live(kA, 3);
  control.send(control::FinishJob{});
  turn();
  EXPECT_FALSE(job_ended);
  wait_for_timer();
  EXPECT_EQ(out.ended, std::vector<ProcessIndex>{3});
  EXPECT_FALSE(job_ended);
  die(3);
  EXPECT_TRUE(job_ended);
}

TEST_F(PrivateNode, RestartsExactlyAsOftenAsAllowed) {
  create(kA, "", 2);
  watch(kA);
  for (ProcessIndex worker = 3; worker < 5; ++worker) {
    live(kA, worker);
    EXPECT_EQ(last().state, ActorState::alive);
    const auto life = last().incarnation;
    die(worker);
    EXPECT_EQ(last().state, ActorState::pending);
    EXPECT_GT(last().incarnation, life);
  }
  live(kA, 5);
  EXPECT_EQ(out.dropped, 0);
  die(5);
  EXPECT_EQ(last().state, ActorState::dead);
  EXPECT_NE(why().find("killed by signal 9; it had used its 2 restarts"), std::string::npos)
      << why();
  EXPECT_EQ(last().error->code, Code::actor_died);
  EXPECT_EQ(last().error->outcome, Outcome::not_executed);
  EXPECT_EQ(last().error->cause->message, "killed by signal 9");
  EXPECT_EQ(out.needed.size(), 3u);
  EXPECT_EQ(out.released, out.needed) << "each life gave its worker back";
  EXPECT_EQ(out.dropped, 1) << "the constructor's arguments are let go";
}

TEST_F(PrivateNode, RestartsAreCountedInTheirWindow) {
  create(kA, "", 1);
  watch(kA);
  live(kA, 3);
  die(3);
  live(kA, 4);
  now += 11s;  // the window is 10 s
  die(4);
  EXPECT_EQ(last().state, ActorState::pending);
  live(kA, 5);
  now += 9s;
  die(5);
  EXPECT_EQ(last().state, ActorState::dead);
}

TEST_F(PrivateNode, ACrashLoopDoesNotEatTheNode) {
  create(kA, "", -1);
  watch(kA);
  const Time begun = now;
  ProcessIndex worker = 100;
  for (; now - begun < 60s; ++worker) {
    live(kA, worker);
    die(worker);
    ASSERT_EQ(last().state, ActorState::pending);
  }
  EXPECT_GE(worker, ProcessIndex{110});
  EXPECT_LE(worker, ProcessIndex{116});
  EXPECT_EQ(control.take_lines().size(), 2u) << "said of the 4th and of the 8th";
}

TEST_F(PrivateNode, WhoWaitsHearsOfAConstructorThatCrashes) {
  create(kA, "", -1);
  watch(kA);
  for (ProcessIndex worker = 3; worker < 5; ++worker) {
    if (control.next_deadline()) wait_for_timer();
    host.worker_ready(out.needed.back(), worker, {});
    die(worker);
  }
  EXPECT_EQ(last().state, ActorState::pending);
  EXPECT_NE(why().find("2nd life, which ended in its constructor with: killed by signal 9"),
            std::string::npos)
      << why();
  const auto due = (now + 100ms).time_since_epoch();
  EXPECT_EQ(last().retry_at_ns, static_cast<std::uint64_t>(due.count()));
  const std::size_t told = out.published.size();
  watch(kA);
  ASSERT_EQ(out.published.size(), told + 1) << "and so does who asks later";
  EXPECT_EQ(last().retry_at_ns, static_cast<std::uint64_t>(due.count()));
  live(kA, 6);
  EXPECT_EQ(last().state, ActorState::alive);
}

TEST_F(PrivateNode, AConstructorThatThrowsInALaterLifeIsADeath) {
  create(kA, "", 2);
  watch(kA);
  live(kA, 3);
  die(3);
  for (ProcessIndex worker = 4; worker < 6; ++worker) {
    if (control.next_deadline()) wait_for_timer();
    host.worker_ready(out.needed.back(), worker, {});
    host.created(worker,
                 {kA, out.needed.back(), Error(Code::task_failed, "no luck").shared_info()});
    turn();
    EXPECT_NE(why().find("no luck"), std::string::npos) << why();
    EXPECT_EQ(last().state, worker == 4 ? ActorState::pending : ActorState::dead);
    die(worker);  // its process ends and belongs to no actor any more
  }
  EXPECT_NE(why().find("it had used its 2 restarts"), std::string::npos) << why();
  EXPECT_EQ(out.released, out.needed);
}

TEST_F(PrivateNode, AConstructorThatThrowsIsFinal) {
  create(kA, "n", 5);
  watch(kA);
  host.worker_ready(out.needed.back(), 3, {});
  ErrorInfo info;
  info.code = Code::task_failed;
  info.message = "bad luck";
  info.type = "St9exception";
  host.created(3, {kA, out.needed.back(), std::make_shared<const ErrorInfo>(info)});
  turn();
  EXPECT_EQ(last().state, ActorState::dead);
  EXPECT_NE(why().find("its constructor threw: bad luck"), std::string::npos) << why();
  EXPECT_EQ(last().error->type, "St9exception");
  EXPECT_EQ(out.dropped, 1);
  EXPECT_FALSE(found("n"));
}

TEST_F(PrivateNode, WhatCanNeverBeHadIsInfeasible) {
  create(kA);
  watch(kA);
  host.no_worker(out.needed.back(), Error(Code::infeasible, "needs 2 GPU"));
  turn();
  EXPECT_EQ(last().state, ActorState::dead);
  EXPECT_EQ(last().error->code, Code::infeasible);
  EXPECT_EQ(why(), "needs 2 GPU");
  EXPECT_EQ(out.needed.size(), 1u) << "not tried again";
}

TEST_F(PrivateNode, ANameHasOneLivingOwner) {
  create(kA, "n");
  create(kB, "n");
  EXPECT_EQ(out.needed.size(), 1u);
  EXPECT_EQ(out.dropped, 1);
  EXPECT_TRUE(found("n"));
  EXPECT_EQ(out.answers.back().actor, kA);
  EXPECT_EQ(out.answers.back().class_name, "Counter");
  live(kA, 3);
  kill(kA);
  EXPECT_EQ(out.killed, std::vector<ProcessIndex>{3});
  EXPECT_FALSE(found("n")) << "free at once, whenever the process ends";
  create(kB, "n");
  die(3);
  unreferenced(kA);
  EXPECT_TRUE(found("n"));
  EXPECT_EQ(out.answers.back().actor, kB);
}

TEST_F(PrivateNode, AKillIsFinalUnlessItMayRestart) {
  create(kA, "", 2);
  watch(kA);
  live(kA, 3);
  kill(kA, true);
  EXPECT_EQ(last().state, ActorState::alive);
  die(3);
  EXPECT_EQ(last().state, ActorState::pending);
  kill(kA, true);  // while the life is being started: that counts too
  EXPECT_EQ(out.needed.size(), 3u);
  live(kA, 4);
  kill(kA);
  EXPECT_EQ(last().state, ActorState::dead);
  EXPECT_NE(why().find("it was killed"), std::string::npos);
  die(4);
  EXPECT_EQ(out.needed.size(), 3u);
  EXPECT_EQ(host.hosted(), 0u);
  EXPECT_EQ(host.watched(), 0u);
}

TEST_F(PrivateNode, AKillReadBeforeTheCreationCounts) {
  watch(kA);
  kill(kA);
  create(kA, "n");
  EXPECT_TRUE(out.needed.empty());
  ASSERT_EQ(out.published.size(), 1u);
  EXPECT_EQ(last().state, ActorState::dead);
  EXPECT_EQ(out.dropped, 1);
  EXPECT_FALSE(found("n"));
  unreferenced(kA);
  EXPECT_EQ(host.watched(), 0u);

  kill(kB);  // by a process that never watched the actor
  create(kB);
  EXPECT_TRUE(out.needed.empty());
  EXPECT_EQ(out.dropped, 2);
}

TEST_F(PrivateNode, NobodysActorIsDeadAfterAWhile) {
  watch(kA);
  const Time asked = now;
  now += 4s;
  turn();
  EXPECT_TRUE(out.published.empty());
  wait_for_timer();
  EXPECT_EQ(now, asked + 5s);
  ASSERT_EQ(out.published.size(), 1u);
  EXPECT_EQ(last().state, ActorState::dead);
  EXPECT_FALSE(control.next_deadline());
}

TEST_F(PrivateNode, UnreferencedEndsWhatRunsAndForgetsIt) {
  create(kA, "n", 5);
  live(kA, 3);
  unreferenced(kA);
  EXPECT_EQ(out.ended, std::vector<ProcessIndex>{3}) << "it finishes what it was asked";
  EXPECT_TRUE(out.killed.empty());
  EXPECT_FALSE(found("n"));
  die(3);
  EXPECT_EQ(out.needed.size(), 1u) << "not restarted";
  EXPECT_EQ(host.hosted(), 0u);
  EXPECT_EQ(host.watched(), 0u);
  EXPECT_EQ(out.dropped, 1);
}

TEST_F(PrivateNode, UnreferencedWhileStartingGivesTheWorkerBack) {
  create(kA, "", 5);
  live(kA, 3);
  die(3);
  unreferenced(kA);
  EXPECT_TRUE(out.ended.empty());
  EXPECT_EQ(out.released.size(), 2u);
  host.worker_ready(out.needed.back(), 4, {});  // granted meanwhile
  EXPECT_EQ(out.released.size(), 3u);
  EXPECT_EQ(out.started, 1);
}

TEST_F(PrivateNode, ADetachedActorOutlivesItsHandles) {
  create(kA, "n", 0, true);
  live(kA, 3);
  unreferenced(kA);
  EXPECT_TRUE(out.ended.empty());
  EXPECT_TRUE(found("n"));
}

}  // namespace
}  // namespace troupe::agent::local_control_test
