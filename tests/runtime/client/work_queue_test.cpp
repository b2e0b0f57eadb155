// Tests WorkQueue: WORK-1 to WORK-5.
#include "troupe/runtime/client/work_queue.hpp"

#include <gtest/gtest.h>
#include <set>
#include <string>

namespace troupe::client::work_queue_test {
namespace {

constexpr ProcessIndex kSelf = 7, kOne = 11, kTwo = 12;

struct WorkQueueTest : testing::Test, WorkQueue::Out {
  WorkQueueTest() { work.belongs_to(kSelf); }
  // WorkQueue::Out
  void hand_back(ProcessIndex caller, const wire::HandBack& calls) override {
    said += "back(" + std::to_string(caller.value) + "," + std::to_string(calls.first) + "+" +
            std::to_string(calls.count) + ") ";
  }
  void drop_refs(const wire::Call& call) override {
    said += "drop(" + std::to_string(call.sequence) + ") ";
  }
  bool is_refused(ProcessIndex caller) override { return refused.count(caller) != 0; }
  void tell_blocked(bool is_blocked) override { said += is_blocked ? "blocked " : "unblocked "; }

  bool take(ProcessIndex from, std::uint64_t sequence, std::uint64_t actor = 0) {
    auto call = std::make_shared<Incoming>();
    call->from = from;
    call->call.sequence = sequence;
    call->call.actor_low = actor;
    return work.take(std::move(call), refused.count(from) != 0);
  }
  /// Takes the next thing and says what it is.
  std::string next() {
    std::shared_ptr<Incoming> call;
    std::optional<ActorStart> actor;
    std::function<void()> coroutine;
    work.next(call, actor, coroutine);
    EXPECT_EQ((call ? 1 : 0) + (actor ? 1 : 0) + (coroutine ? 1 : 0), 1);
    return call ? "call " + std::to_string(call->call.sequence) : actor ? "actor" : "coroutine";
  }

  std::set<ProcessIndex> refused;
  std::string said;
  WorkQueue work{*this};
};

TEST_F(WorkQueueTest, CoroutinesGoBeforeActorsAndThoseBeforeCalls) {
  EXPECT_FALSE(work.has_any());
  take(kOne, 1);
  take(kOne, 2);
  work.become({});
  work.resume([] {});
  EXPECT_EQ(next(), "coroutine");
  EXPECT_EQ(next(), "actor");
  EXPECT_EQ(next(), "call 1");
  EXPECT_TRUE(work.has_calls());
  EXPECT_EQ(next(), "call 2");
  EXPECT_FALSE(work.has_any());
}

TEST_F(WorkQueueTest, ActorAloneIsNotBegunAfterTheEnd) {
  work.become({});
  EXPECT_TRUE(work.has_any());
  work.end();
  EXPECT_FALSE(work.has_any());
  take(kOne, 1);
  EXPECT_TRUE(work.has_any());
}

TEST_F(WorkQueueTest, CallThatWouldWaitWhileBlockedIsHandedBack) {
  take(kOne, 1);
  EXPECT_EQ(next(), "call 1");
  take(kOne, 2);
  take(kTwo, 5);
  take(kOne, 3);
  take(kTwo, 9, 4);
  work.block();
  EXPECT_EQ(said, "drop(2) drop(5) drop(3) back(11,2+2) back(12,5+1) blocked ");
  said.clear();
  EXPECT_TRUE(take(kOne, 4));
  EXPECT_EQ(said, "drop(4) back(11,4+1) ");
  EXPECT_EQ(next(), "call 9") << "calls of actors stay";
}

TEST_F(WorkQueueTest, CallStaysWhileTheExecutorIsFree) {
  work.block();
  said.clear();
  take(kOne, 1);
  EXPECT_EQ(said, "");
  work.executor_waits(true);
  take(kOne, 2);
  EXPECT_EQ(said, "drop(1) drop(2) back(11,1+2) ");
}

TEST_F(WorkQueueTest, OwnCallStaysWhileTheWorkerEnds) {
  work.end();
  work.block();
  said.clear();
  take(kSelf, 1);
  EXPECT_EQ(said, "");
  take(kOne, 1);
  EXPECT_NE(said, "");
}

TEST_F(WorkQueueTest, CallsOfARefusedCallerWaitUntilTheyAreJudged) {
  refused = {kOne, kTwo};
  EXPECT_FALSE(take(kOne, 1));
  EXPECT_FALSE(take(kTwo, 5));
  EXPECT_FALSE(take(kOne, 2));
  EXPECT_TRUE(take(kTwo, 9, 4)) << "an actor's call has no lease";
  EXPECT_TRUE(work.has_refused());
  EXPECT_EQ(next(), "call 9");
  refused = {kTwo};
  EXPECT_TRUE(work.judge_refused());
  EXPECT_EQ(said, "drop(5) back(12,5+1) ");
  EXPECT_FALSE(work.has_refused());
  EXPECT_EQ(next(), "call 1");
  EXPECT_EQ(next(), "call 2");
  EXPECT_FALSE(work.judge_refused());
}

TEST_F(WorkQueueTest, BlockedIsToldOnceForAllReasons) {
  work.block();
  work.block();
  EXPECT_TRUE(work.is_blocked());
  work.unblock();
  EXPECT_TRUE(work.is_blocked());
  EXPECT_EQ(said, "blocked ");
  work.unblock();
  EXPECT_FALSE(work.is_blocked());
  EXPECT_EQ(said, "blocked unblocked ");
}

TEST_F(WorkQueueTest, CallsOfADeadCallerAreDroppedAndNotHandedBack) {
  take(kOne, 1);
  take(kTwo, 2);
  refused = {kOne};
  take(kOne, 3);
  work.drop_calls_of(kOne);
  EXPECT_EQ(said, "drop(1) drop(3) ");
  EXPECT_FALSE(work.has_refused());
  EXPECT_EQ(next(), "call 2");
  EXPECT_FALSE(work.has_any());
}

TEST_F(WorkQueueTest, WorkerServesFromNextUntilTheAnswer) {
  EXPECT_FALSE(work.is_busy());
  take(kOne, 1);
  EXPECT_TRUE(work.is_busy());
  EXPECT_FALSE(work.is_serving());
  next();
  EXPECT_TRUE(work.is_serving());
  work.answered();
  EXPECT_FALSE(work.is_busy());
}

}  // namespace
}  // namespace troupe::client::work_queue_test
