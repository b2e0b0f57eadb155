// Tests TaskManager. TASK-1: a task is in one place. TASK-2: an unstarted call costs no retry.
// TASK-3: a reclaimed lease gets no new calls. It also tests when leases are requested, recalled
// and returned.
#include "troupe/runtime/client/tasks.hpp"

#include <gtest/gtest.h>
#include <map>
#include <set>
#include <string>

namespace troupe::client {
namespace {

using namespace std::chrono_literals;

Time at(Duration d) {
  return Time{} + d;
}

struct SentTask {
  ProcessIndex worker;
  int task;
  bool operator==(const SentTask&) const = default;
};
struct LeaseRequest {
  LeaseKey key;
  std::uint32_t backlog;
  bool operator==(const LeaseRequest&) const = default;
};
using Sent = std::vector<SentTask>;
using Requests = std::vector<LeaseRequest>;

/// Records effects. A task's name is the one byte in its call.bytes.
struct Recorder final : TaskManager::Out {
  Sent sent;
  Requests requests;
  std::vector<LeaseId> returned;
  std::vector<ProcessIndex> recalled;
  std::size_t returned_by_then = 0;  // leases returned before the last request
  std::vector<int> failed;
  Code last = Code::internal;     // of the last failure
  std::vector<Outcome> outcomes;  // of the failures
  std::map<ProcessIndex, std::uint64_t> sequence;
  std::set<ProcessIndex> full;
  std::set<LeaseKey> forgotten;

  static int name(const Task& task) { return static_cast<int>(task.call.bytes.at(0)); }
  bool send(ProcessIndex worker, Task& task) override {
    if (full.count(worker) != 0) return false;
    task.sequence = ++sequence[worker];
    sent.push_back({worker, name(task)});
    return true;
  }
  void request_lease(LeaseKey key, std::uint32_t backlog) override {
    requests.push_back({key, backlog});
    returned_by_then = returned.size();
  }
  void unused(LeaseKey key) override { forgotten.insert(key); }
  void return_lease(LeaseId lease) override { returned.push_back(lease); }
  void recall(ProcessIndex worker) override { recalled.push_back(worker); }
  void fail(Task& task, const Error& error) override {
    failed.push_back(name(task));
    last = error.code();
    outcomes.push_back(error.outcome());
  }
};

struct Tasks : testing::Test {
  Recorder out;
  TaskManager tasks{out};
  const Error died{Code::worker_died, "killed"};

  Task* submit(int name, std::uint32_t waiting = 0, std::int32_t retries = 3, std::uint32_t key = 1,
               Time now = at(0ms)) {
    auto task = std::make_unique<Task>();
    task->key = key;
    task->call.bytes.assign(1, static_cast<std::byte>(name));
    task->waiting = waiting;
    task->retries_left = retries;
    Task* raw = task.get();
    tasks.submit(std::move(task), now);
    return raw;
  }
  /// Makes a lease 10 on worker 5 whose calls are known to be short, with tasks first..last in
  /// flight from sequence 2 on.
  void stream(int first, int last, std::int32_t retries = 3) {
    submit(99);
    tasks.granted(1, 10, 5, at(0ms));
    tasks.ended(5, 1, 1us, at(0ms));
    for (int name = first; name <= last; ++name) submit(name, 0, retries);
    out.sent.clear();
    out.requests.clear();
  }
};

TEST_F(Tasks, AsksOnceThenWhenItDoublesAndWithdrawsWhenDrained) {
  for (int i = 0; i < 5; ++i) submit(i);
  EXPECT_EQ(out.requests, (Requests{{1, 1}, {1, 2}, {1, 4}}));
  out.requests.clear();
  tasks.granted(1, 10, 5, at(0ms));
  tasks.ended(5, 1, 1us, at(0ms));  // short, so the other calls follow without waiting
  EXPECT_EQ(out.sent.size(), 5u);
  EXPECT_EQ(out.requests.back(), (LeaseRequest{1, 0}));
  EXPECT_EQ(tasks.queued(), 0u);
  EXPECT_EQ(tasks.live(), 4u);
}

TEST_F(Tasks, DepthFollowsTheTimeOfTheCalls) {
  for (int i = 0; i < 9; ++i) submit(i);
  tasks.granted(1, 10, 5, at(0ms));
  EXPECT_EQ(out.sent.size(), 1u) << "nothing is known yet";
  tasks.ended(5, 1, 200us, at(1ms));
  EXPECT_EQ(out.sent.size(), 3u) << "two of 200 us fill 400 us";
  for (std::uint64_t s = 2; s <= 6; ++s) tasks.ended(5, s, 50ms, at(1s));
  EXPECT_EQ(out.sent.size(), 7u) << "long ones stay movable: one at a time";
}

TEST_F(Tasks, TheWayIsOpenExactlyWhenATaskWouldBeSentAtOnce) {
  EXPECT_EQ(tasks.open_way(1), ProcessIndex{});
  submit(1);
  EXPECT_EQ(tasks.open_way(1), ProcessIndex{}) << "no lease";
  tasks.granted(1, 10, 5, at(0ms));
  EXPECT_EQ(tasks.open_way(1), ProcessIndex{}) << "one at a time until something is known";
  tasks.ended(5, 1, 1us, at(0ms));
  EXPECT_EQ(tasks.open_way(1), ProcessIndex{5});
  EXPECT_EQ(tasks.open_way(2), ProcessIndex{});
  out.full.insert(5);
  submit(2);
  EXPECT_EQ(tasks.open_way(1), ProcessIndex{}) << "it would overtake one that waits";
  out.full.clear();
  tasks.writable(5, at(0ms));
  EXPECT_EQ(tasks.open_way(1), ProcessIndex{5});
  tasks.reclaim(10, at(0ms));
  EXPECT_EQ(tasks.open_way(1), ProcessIndex{});
}

TEST_F(Tasks, WhatWasSentAheadIsInFlightLikeAnyOther) {
  stream(1, 1);
  for (int name = 2; name <= 3; ++name) {
    auto task = std::make_unique<Task>();
    task->key = 1;
    task->call.bytes.assign(1, static_cast<std::byte>(name));
    task->sequence = ++out.sequence[5];
    tasks.sent(std::move(task), tasks.open_way(1), at(1ms));
  }
  EXPECT_EQ(tasks.live(), 3u);
  EXPECT_EQ(Recorder::name(*tasks.in_flight(5, 4)), 3);
  EXPECT_NE(tasks.ended(5, 3, 1us, at(1ms)), nullptr);
  tasks.worker_died(5, 2, died, true, at(2ms));
  EXPECT_EQ(tasks.queued(), 2u) << "one that began is tried again, one that had not costs nothing";
  tasks.granted(1, 11, 6, at(3ms));
  tasks.ended(6, 1, 1us, at(3ms));
  EXPECT_EQ(out.sent, (Sent{{6, 1}, {6, 3}}));
  EXPECT_TRUE(out.failed.empty());
}

TEST_F(Tasks, ALostGrantIsAskedForAgain) {
  submit(1);
  EXPECT_EQ(out.requests.size(), 1u);
  Time next = tasks.tick(at(0ms));
  EXPECT_EQ(next, at(100ms));
  next = tasks.tick(next);
  EXPECT_EQ(out.requests, (Requests{{1, 1}, {1, 1}}));
  EXPECT_EQ(next, at(200ms));
}

TEST_F(Tasks, ReclaimedWhileBusyGetsNothingNewAndGoesBackAtItsEnd) {
  stream(1, 2);
  tasks.reclaim(10, at(1ms));
  EXPECT_EQ(out.recalled, std::vector<ProcessIndex>{5});
  tasks.reclaim(10, at(1ms));
  EXPECT_EQ(out.recalled.size(), 1u) << "one recall is enough";
  submit(3);
  EXPECT_TRUE(out.sent.empty());
  tasks.ended(5, 2, 1us, at(1ms));
  EXPECT_TRUE(out.returned.empty());
  tasks.ended(5, 3, 1us, at(1ms));
  EXPECT_EQ(out.returned, std::vector<LeaseId>{10});
  EXPECT_FALSE(tasks.has_worker(5));
  EXPECT_EQ(out.requests.back().backlog, 1u) << "the third waits for another lease";
}

TEST_F(Tasks, ReclaimedWhileIdleGoesBackAtOnce) {
  stream(1, 0);
  tasks.reclaim(77, at(0ms));
  EXPECT_TRUE(out.returned.empty());
  tasks.reclaim(10, at(0ms));
  EXPECT_EQ(out.returned, std::vector<LeaseId>{10});
}

TEST_F(Tasks, HandBackOfAReclaimedLeaseReturnsItAndKeepsOrder) {
  stream(1, 3);
  submit(4);
  tasks.reclaim(10, at(0ms));
  tasks.handed_back(5, 2, 4, at(0ms));
  EXPECT_EQ(out.returned, std::vector<LeaseId>{10});
  EXPECT_EQ(tasks.queued(), 4u);
  out.sent.clear();
  tasks.granted(1, 11, 6, at(0ms));
  EXPECT_EQ(out.sent, (Sent{{6, 1}, {6, 2}, {6, 3}, {6, 4}}));
}

TEST_F(Tasks, AWorkerThatWasTakenBackAndGrantedAgainKeepsItsCalls) {
  stream(1, 3);
  tasks.reclaim(10, at(0ms));  // this process was silent: the agent has ended the lease
  out.sent.clear();
  tasks.granted(1, 11, 5, at(0ms));
  tasks.handed_back(5, 2, 1, at(0ms));
  EXPECT_TRUE(out.returned.empty());
  EXPECT_EQ(tasks.live(), 3u);
  tasks.reclaim(11, at(0ms));
  tasks.handed_back(5, 2, 4, at(0ms));
  EXPECT_EQ(out.returned, std::vector<LeaseId>{11});
  EXPECT_EQ(tasks.queued(), 3u);
}

TEST_F(Tasks, AWorkerWithCallsOfAnotherKeyIsReturnedAtOnce) {
  stream(1, 3);
  tasks.reclaim(10, at(0ms));
  submit(9, 0, 3, 2);
  tasks.granted(2, 11, 5, at(0ms));
  EXPECT_EQ(out.returned, std::vector<LeaseId>{11});
  EXPECT_EQ(tasks.queued(), 1u);
}

TEST_F(Tasks, WithoutAWayToWorkersOnlyKeysWithoutALeaseFail) {
  stream(1, 1);
  submit(2, 0, 3, 2);
  submit(3, 1, 3, 2);
  tasks.refuse_unleased(Error(Code::unavailable, "no descriptor"));
  EXPECT_EQ(out.failed, std::vector<int>{2});
  EXPECT_EQ(out.requests.back(), (LeaseRequest{2, 0})) << "the agent need not grant it";
  submit(4, 0, 3, 2);
  EXPECT_EQ(out.requests.back(), (LeaseRequest{2, 1})) << "later tasks ask again";
}

TEST_F(Tasks, ARetryThatEmptiesAReclaimedLeaseReturnsIt) {
  stream(1, 1);
  tasks.reclaim(10, at(0ms));
  EXPECT_TRUE(tasks.retry(5, 2, at(0ms)));
  EXPECT_EQ(out.returned, std::vector<LeaseId>{10});
  EXPECT_EQ(tasks.queued(), 1u);
}

TEST_F(Tasks, WhoHandsBackGetsNothingUntilItMoves) {
  stream(1, 3);
  tasks.handed_back(5, 3, 2, at(0ms));  // the first call waits for others
  EXPECT_TRUE(out.sent.empty()) << "they would come straight back";
  EXPECT_EQ(tasks.queued(), 2u);
  tasks.ended(5, 2, 1us, at(1ms));
  EXPECT_EQ(out.sent, (Sent{{5, 2}, {5, 3}}));
}

TEST_F(Tasks, ADeathCostsARetryOnlyWhatHadStarted) {
  stream(1, 3, 1);
  submit(4);
  tasks.worker_died(5, 2, died, true, at(0ms));
  EXPECT_TRUE(out.failed.empty());
  EXPECT_FALSE(tasks.has_worker(5));
  out.sent.clear();
  tasks.granted(1, 11, 6, at(0ms));
  EXPECT_EQ(out.sent, (Sent{{6, 1}, {6, 2}, {6, 3}, {6, 4}})) << "in their order";
  EXPECT_EQ(tasks.in_flight(6, 1)->attempt, 2u);
  EXPECT_EQ(tasks.in_flight(6, 2)->attempt, 1u);
  EXPECT_EQ(tasks.in_flight(6, 1)->retries_left, 0);
  EXPECT_EQ(tasks.in_flight(6, 2)->retries_left, 1);
  tasks.worker_died(6, 2, died, true, at(0ms));
  EXPECT_EQ(out.failed, std::vector<int>{1}) << "its only retry was used";
  EXPECT_EQ(tasks.live(), 3u);
}

TEST_F(Tasks, RetriesWithoutLimitAndNone) {
  stream(1, 1, -1);
  for (int i = 0; i < 50; ++i)
    EXPECT_TRUE(tasks.retry(5, static_cast<std::uint64_t>(i) + 2, at(0ms)));
  EXPECT_EQ(tasks.in_flight(5, 52)->retries_left, -1);
  EXPECT_EQ(tasks.in_flight(5, 51), nullptr) << "a late reply of an old attempt finds nothing";
  submit(2, 0, 0);
  EXPECT_FALSE(tasks.retry(5, 53, at(0ms)));
  EXPECT_NE(tasks.in_flight(5, 53), nullptr) << "it stays for its error to be delivered";
}

TEST_F(Tasks, ARefusedKeyFailsWhatIsReadyAndCanBecomeFeasible) {
  submit(1);
  Task* waits = submit(2, 1);
  tasks.refused(1, Error(Code::infeasible, "no"));
  EXPECT_EQ(out.failed, std::vector<int>{1});
  out.requests.clear();
  tasks.argument_ready(*waits, at(0ms));
  EXPECT_EQ(out.requests, (Requests{{1, 1}}));
  tasks.granted(1, 10, 5, at(0ms));
  EXPECT_EQ(out.sent, (Sent{{5, 2}}));
}

// The first attempt may have run, however the second ends.
TEST_F(Tasks, WhatAnEarlierAttemptRanIsNotCalledNotExecuted) {
  stream(1, 2);
  tasks.worker_died(5, 2, died, false, at(0ms));
  submit(3);
  tasks.refused(1, Error(Code::infeasible, "no"));
  EXPECT_EQ(out.failed, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(out.outcomes,
            (std::vector{Outcome::unknown, Outcome::not_executed, Outcome::not_executed}));
}

TEST_F(Tasks, WhatIsTriedAgainAfterItsAnswerIsNotCalledNotExecuted) {
  stream(1, 1);
  tasks.reclaim(10, at(0ms));
  EXPECT_TRUE(tasks.retry(5, 2, at(0ms)));  // as if it threw
  submit(2);
  tasks.refused(1, Error(Code::infeasible, "no"));
  EXPECT_EQ(out.failed, (std::vector<int>{1, 2}));
  EXPECT_EQ(out.outcomes, (std::vector{Outcome::unknown, Outcome::not_executed}));
}

TEST_F(Tasks, AFailedArgumentFailsOnceAndTheTaskStaysForTheOthers) {
  Task* task = submit(1, 3);
  tasks.argument_failed(*task, Error(Code::task_failed, "it threw", Outcome::executed));
  tasks.argument_failed(*task, died);
  EXPECT_EQ(out.failed, std::vector<int>{1});
  EXPECT_EQ(out.outcomes, std::vector{Outcome::not_executed}) << "what made the argument ran";
  EXPECT_EQ(tasks.live(), 1u);
  tasks.argument_ready(*task, at(0ms));
  EXPECT_EQ(tasks.live(), 0u);
  EXPECT_TRUE(out.requests.empty()) << "it never runs";
}

TEST_F(Tasks, AFullRingHoldsUntilWritable) {
  submit(1);
  out.full.insert(5);
  tasks.granted(1, 10, 5, at(0ms));
  EXPECT_TRUE(out.sent.empty());
  tasks.granted(1, 11, 6, at(0ms));
  EXPECT_EQ(out.sent, (Sent{{6, 1}}));
  submit(2);
  out.full.clear();
  tasks.writable(6, at(0ms));
  tasks.writable(99, at(0ms));
  EXPECT_EQ(out.sent.size(), 1u);
  tasks.writable(5, at(0ms));
  EXPECT_EQ(out.sent, (Sent{{6, 1}, {5, 2}}));
}

TEST_F(Tasks, RecallsOnlyWhenSomebodyElseCouldTakeTheWork) {
  stream(1, 3);
  (void)tasks.tick(at(500us));
  EXPECT_TRUE(out.recalled.empty());
  (void)tasks.tick(at(1ms));
  EXPECT_TRUE(out.recalled.empty()) << "nobody is idle";
  EXPECT_EQ(out.requests, (Requests{{1, 1}})) << "one more worker is asked for";
  tasks.granted(1, 11, 6, at(2ms));
  (void)tasks.tick(at(2ms));
  (void)tasks.tick(at(3ms));
  EXPECT_EQ(out.recalled, std::vector<ProcessIndex>{5});
  tasks.handed_back(5, 3, 2, at(3ms));
  EXPECT_EQ(out.sent, (Sent{{6, 2}, {6, 3}}));
}

TEST_F(Tasks, AnIdleLeaseGoesBackAfterFiftyMilliseconds) {
  stream(1, 1);
  const Time next = tasks.tick(at(0ms));
  EXPECT_LE(next, at(50ms)) << "a busy lease may be idle soon: it is looked at again";
  tasks.ended(5, 2, 1us, at(10ms));
  EXPECT_EQ(tasks.tick(at(59ms)), at(60ms));
  EXPECT_TRUE(out.returned.empty());
  EXPECT_EQ(tasks.tick(at(60ms)), Time::max());
  EXPECT_EQ(out.returned, std::vector<LeaseId>{10});
}

TEST_F(Tasks, AnIdleLeaseGoesBackBeforeATaskOfAnotherDemandAsks) {
  stream(1, 1);
  tasks.ended(5, 2, 1us, at(10ms));
  submit(2, 0, 3, 2, at(10ms) + 500us);
  EXPECT_TRUE(out.returned.empty()) << "demands that take turns keep their leases";
  submit(3, 0, 3, 3, at(11ms));
  EXPECT_EQ(out.requests.back(), (LeaseRequest{3, 1}));
  EXPECT_EQ(out.returned, std::vector<LeaseId>{10});
  EXPECT_EQ(out.returned_by_then, 1u);
  tasks.granted(3, 11, 6, at(12ms));
  submit(4, 0, 3, 4, at(20ms));
  EXPECT_EQ(out.returned.size(), 1u) << "one that works stays";
}

TEST_F(Tasks, ALeaseWithoutACallGoesBackAtOnceWhileTasksOfOtherDemandsAreReady) {
  stream(1, 2);
  submit(3, 0, 3, 2);
  tasks.ended(5, 2, 1us, at(0ms));
  EXPECT_TRUE(out.returned.empty()) << "it has another call";
  tasks.ended(5, 3, 1us, at(0ms));
  EXPECT_EQ(out.returned, std::vector<LeaseId>{10});
  tasks.granted(1, 11, 6, at(0ms));
  EXPECT_EQ(out.returned, (std::vector<LeaseId>{10, 11})) << "it came too late";
  tasks.granted(2, 12, 7, at(0ms));
  tasks.ended(7, 1, 1us, at(0ms));
  EXPECT_EQ(out.returned.size(), 2u) << "nobody waits: it stays warm";
}

TEST_F(Tasks, DemandsThatTakeTurnsGetTheLeaseAfterAMillisecond) {
  stream(1, 1);
  tasks.ended(5, 2, 1us, at(0ms));
  submit(2, 0, 3, 2, at(0ms));
  EXPECT_LE(tasks.tick(at(0ms)), at(1ms));
  EXPECT_TRUE(out.returned.empty());
  tasks.tick(at(1ms));
  EXPECT_EQ(out.returned, std::vector<LeaseId>{10});
}

TEST_F(Tasks, ManyOpenRequestsAreRepeatedLessOften) {
  for (std::uint32_t key = 1; key <= 640; ++key) submit(1, 0, 3, key);
  out.requests.clear();
  Time next = at(0ms);
  while (out.requests.empty() && next < at(10s)) next = tasks.tick(next);
  EXPECT_EQ(out.requests.size(), 640u);
  EXPECT_GE(next, at(1s));
}

TEST_F(Tasks, InventedInputsChangeNothing) {
  stream(1, 1);
  EXPECT_EQ(tasks.in_flight(5, 77), nullptr);
  EXPECT_EQ(tasks.in_flight(6, 2), nullptr);
  EXPECT_FALSE(tasks.retry(5, 77, at(0ms)));
  tasks.handed_back(5, 3, ~std::uint64_t{0}, at(0ms));
  tasks.handed_back(6, 1, 9, at(0ms));
  tasks.worker_died(6, 0, died, true, at(0ms));
  EXPECT_NE(tasks.in_flight(5, 2), nullptr);
}

TEST_F(Tasks, ATaskThatKilledThreeWorkersIsNotTriedAgain) {
  submit(1, 0, -1);
  submit(2, 0, -1);
  ProcessIndex worker;
  const auto dies = [&](bool alone) {
    ++worker;
    tasks.granted(1, LeaseId::of(10 + worker.value), worker, at(0ms));
    tasks.worker_died(worker, 1, died, alone, at(0ms));
  };
  dies(true);
  dies(false);  // the worker died with its node, which was not the task's doing
  dies(true);
  EXPECT_TRUE(out.failed.empty());
  dies(true);
  EXPECT_EQ(out.failed, std::vector<int>{1});
  EXPECT_EQ(out.last, Code::poison_task);
  tasks.granted(1, 20, 20, at(0ms));
  EXPECT_EQ(out.sent.back(), (SentTask{20, 2})) << "the other one goes on";
}

// An argument was lost. The task has not run, and runs when the argument is there again.
TEST_F(Tasks, APostponedTaskIsSentAgainWithoutCostingARetry) {
  Task* task = submit(1, 0, 0);
  tasks.granted(1, 10, 5, at(0ms));
  ASSERT_EQ(out.sent, (Sent{{5, 1}}));
  tasks.postponed(5, 1, 1, at(1ms));
  EXPECT_EQ(tasks.in_flight(5, 1), nullptr);
  EXPECT_EQ(out.sent.size(), 1u);
  EXPECT_EQ(task->attempt, 2u);
  tasks.argument_ready(*task, at(2ms));
  EXPECT_EQ(out.sent, (Sent{{5, 1}, {5, 1}}));
  tasks.postponed(5, 2, 0, at(3ms));  // the argument is there already
  EXPECT_EQ(out.sent.size(), 3u);
  EXPECT_TRUE(tasks.ended(5, 3, 1us, at(4ms)) != nullptr);
  EXPECT_EQ(tasks.live(), 0u);
  EXPECT_TRUE(out.failed.empty());
}

TEST_F(Tasks, KeysThatNobodyUsesAreForgottenButForTheLastOnes) {
  Time now = at(0ms);
  const auto run = [&](std::uint32_t key, bool ends) {
    auto task = std::make_unique<Task>();
    task->key = key;
    task->call.bytes.assign(1, std::byte{1});
    tasks.submit(std::move(task), now);
    const ProcessIndex worker = ProcessIndex::of(key);
    tasks.granted(LeaseKey::of(key), LeaseId::of(key), worker, now);
    if (ends) tasks.ended(worker, 1, 1ms, now);
  };
  run(1, false);  // goes on
  auto waits = std::make_unique<Task>();
  waits->key = 2;
  waits->waiting = 1;
  waits->call.bytes.assign(1, std::byte{2});
  tasks.submit(std::move(waits), now);
  for (std::uint32_t key = 10; key < 1000; ++key) run(key, true);
  now += 1s;
  tasks.tick(now);
  EXPECT_EQ(tasks.keys(), 2 + TaskManager::kUnusedKeys);
  EXPECT_EQ(out.forgotten.size(), 990 - TaskManager::kUnusedKeys);
  EXPECT_EQ(out.forgotten.count(1) + out.forgotten.count(2), 0u);
  EXPECT_EQ(out.forgotten.count(999), 0u);
  EXPECT_EQ(out.returned.size(), 990u);
  tasks.ended(1, 1, 1ms, now);
}

}  // namespace
}  // namespace troupe::client
