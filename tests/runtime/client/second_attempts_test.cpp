// Tests TaskManager: a task that runs unusually long gets a second attempt. TASK-5: one of the
// two attempts ends the task, and neither waits behind the other. It also tests the pairs of
// attempts (ATTEMPTS-1, ATTEMPTS-2) and the estimate of a function's usual time.
#include "troupe/runtime/client/second_attempts.hpp"

#include "troupe/runtime/client/tasks.hpp"

#include <gtest/gtest.h>
#include <set>
#include <utility>

namespace troupe::client::second_attempts_test {
namespace {

using namespace std::chrono_literals;

Time at(Duration d) {
  return Time{} + d;
}

struct SentTask {
  ProcessIndex worker;
  std::uint32_t attempt;
  bool operator==(const SentTask&) const = default;
};
using Sent = std::vector<SentTask>;

struct Recorder final : TaskManager::Out {
  Sent sent;
  std::vector<LeaseId> returned;
  std::vector<ProcessIndex> recalled;
  std::vector<Code> failed;
  std::uint32_t wanted = 0;
  std::uint64_t sequence = 0;

  bool send(ProcessIndex worker, Task& task) override {
    task.sequence = ++sequence;
    sent.push_back({worker, task.attempt});
    return true;
  }
  void request_lease(LeaseKey, std::uint32_t backlog) override { wanted = backlog; }
  void return_lease(LeaseId lease) override { returned.push_back(lease); }
  void recall(ProcessIndex worker) override { recalled.push_back(worker); }
  void fail(Task&, const Error& error) override { failed.push_back(error.code()); }
};

constexpr ProcessIndex kFirst = 5;  // workers
constexpr ProcessIndex kSecond = 6;

struct TwoAttempts : testing::Test {
  Recorder out;
  TaskManager tasks{out};
  detail::Callable function{.name = "f"};
  const Error died{Code::worker_died, "killed"};

  void submit(bool may, Time now, std::int32_t retries = 3) {
    detail::Request request;
    request.second_attempt = may;
    std::unique_ptr<Task> task(new Task);
    task->call.callable = &function;
    task->request = std::make_unique<const detail::Request>(request);
    task->results.push_back({});
    task->retries_left = retries;
    tasks.submit(std::move(task), now);
  }
  /// Runs five tasks of 50 ms on the first worker, so that 150 ms are too long. Then sends one
  /// there at 1 s.
  void SetUp() override { begin(true, 3); }
  void begin(bool may, std::int32_t retries) {
    if (!tasks.has_worker(kFirst)) tasks.granted(0, 10, kFirst, at(0ms));
    for (int i = 0; i < 5; ++i) {
      submit(may, at(0ms), retries);
      tasks.ended(kFirst, out.sequence, 50ms, at(50ms));
    }
    submit(may, at(1s), retries);
    out.sent.clear();
  }
  std::uint64_t slow() const { return out.sequence; }  ///< the number of the task's last attempt
  /// Starts the second attempt on the second worker; returns the number of the first.
  std::uint64_t both_run() {
    const std::uint64_t first = slow();
    tasks.tick(at(1150ms));
    tasks.granted(0, 11, kSecond, at(1151ms));
    EXPECT_EQ(out.sent, (Sent{{kSecond, 2}}));
    return first;
  }
};

TEST_F(TwoAttempts, BeginOnAnotherWorkerAfterThreeTimesTheUsual) {
  EXPECT_EQ(tasks.tick(at(1120ms)), at(1150ms));
  EXPECT_EQ(tasks.second_attempts(), 0u);
  EXPECT_EQ(out.wanted, 0u);
  tasks.tick(at(1150ms));
  EXPECT_EQ(tasks.second_attempts(), 1u);
  EXPECT_EQ(out.wanted, 1u);
  EXPECT_TRUE(out.sent.empty()) << "it does not wait behind the first";
  tasks.granted(0, 11, kSecond, at(1151ms));
  EXPECT_EQ(out.sent, (Sent{{kSecond, 2}}));
  tasks.tick(at(10s));
  EXPECT_EQ(tasks.second_attempts(), 1u) << "there is no third";
}

TEST_F(TwoAttempts, NeverWithoutTheOptionWithoutRetriesOrBeforeTheUsualIsKnown) {
  tasks.ended(kFirst, slow(), 50ms, at(1050ms));
  begin(false, 3);
  EXPECT_GE(tasks.tick(at(1h)), at(1h));
  tasks.ended(kFirst, slow(), 50ms, at(1h));
  begin(true, 0);
  tasks.tick(at(1h));
  tasks.ended(kFirst, slow(), 50ms, at(1h));
  function.name = "g";
  submit(true, at(1h));
  tasks.tick(at(2h));
  EXPECT_EQ(tasks.second_attempts(), 0u);
}

TEST_F(TwoAttempts, TheFirstThatEndsCountsAndTheOtherFindsNoResults) {
  for (const bool second_wins : {false, true}) {
    const std::uint64_t first = both_run();
    const std::uint64_t second = slow();
    const auto early = second_wins ? std::pair{kSecond, second} : std::pair{kFirst, first};
    const auto late = second_wins ? std::pair{kFirst, first} : std::pair{kSecond, second};
    const auto task = tasks.ended(early.first, early.second, 200ms, at(1200ms));
    EXPECT_EQ(task->results.size(), 1u);
    ASSERT_NE(tasks.in_flight(late.first, late.second), nullptr) << "it runs on";
    EXPECT_FALSE(tasks.yields(late.first, late.second, at(1300ms)));
    EXPECT_FALSE(tasks.retry(late.first, late.second, at(1300ms)));
    EXPECT_TRUE(tasks.ended(late.first, late.second, 900ms, at(2s))->results.empty());
    EXPECT_EQ(tasks.live(), 0u);
    tasks.tick(at(10s));  // both leases are returned
    begin(true, 3);
  }
}

TEST_F(TwoAttempts, OneThatHasNotBegunIsForgotten) {
  tasks.tick(at(1150ms));
  EXPECT_EQ(tasks.queued(), 1u);
  tasks.ended(kFirst, slow(), 160ms, at(1160ms));
  EXPECT_EQ(tasks.queued(), 0u);
  EXPECT_EQ(tasks.live(), 0u);
  EXPECT_EQ(out.wanted, 0u) << "nobody needs that worker";
}

TEST_F(TwoAttempts, AnErrorOfOneLeavesItToTheOther) {
  const std::uint64_t first = both_run();
  const std::uint64_t second = slow();
  EXPECT_TRUE(tasks.yields(kFirst, first, at(1160ms)));
  EXPECT_EQ(tasks.in_flight(kFirst, first), nullptr);
  tasks.tick(at(1h));
  EXPECT_EQ(tasks.second_attempts(), 1u) << "or a slow one that always throws would never end";
  EXPECT_FALSE(tasks.yields(kSecond, second, at(1170ms))) << "the last one's error counts";
  EXPECT_EQ(tasks.ended(kSecond, second, 20ms, at(1170ms))->results.size(), 1u);
  EXPECT_EQ(tasks.live(), 0u);
}

TEST_F(TwoAttempts, AWorkersDeathCostsOneAttempt) {
  const std::uint64_t first = both_run();
  const std::uint64_t second = slow();
  out.sent.clear();
  tasks.worker_died(kFirst, first, died, true, at(1160ms));
  EXPECT_TRUE(out.sent.empty());
  EXPECT_EQ(tasks.live(), 1u) << "the other goes on";
  tasks.worker_died(kSecond, second, died, true, at(1170ms));
  tasks.granted(0, 12, 7, at(1180ms));
  EXPECT_EQ(out.sent, (Sent{{7, 3}})) << "the last one is retried";
  tasks.worker_died(7, slow(), died, true, at(1190ms));
  EXPECT_EQ(out.failed, (std::vector<Code>{Code::poison_task})) << "three were killed together";
  EXPECT_EQ(tasks.live(), 0u);
}

TEST_F(TwoAttempts, ALateOneThatDiesOrIsHandedBackIsOver) {
  const std::uint64_t first = both_run();
  const std::uint64_t second = slow();
  tasks.ended(kSecond, second, 20ms, at(1170ms));
  tasks.worker_died(kFirst, first, died, true, at(1180ms));
  EXPECT_EQ(tasks.live(), 0u);
  EXPECT_TRUE(out.failed.empty());

  tasks.tick(at(10s));  // the idle lease is returned
  begin(true, 3);
  const std::uint64_t again = both_run();
  tasks.ended(kSecond, slow(), 20ms, at(1170ms));
  tasks.handed_back(kFirst, again, 1, at(1180ms));
  EXPECT_EQ(tasks.live(), 0u);
  EXPECT_EQ(tasks.queued(), 0u);
}

TEST_F(TwoAttempts, OneThatWaitsForALostArgumentIsOverWhenThatComes) {
  const std::uint64_t first = both_run();
  const std::uint64_t second = slow();
  Task& waiting = *tasks.in_flight(kFirst, first);
  tasks.postponed(kFirst, first, 1, at(1160ms));
  tasks.ended(kSecond, second, 20ms, at(1170ms));
  EXPECT_EQ(tasks.live(), 1u);
  tasks.argument_ready(waiting, at(1180ms));
  EXPECT_EQ(tasks.live(), 0u);
}

TEST(SecondAttempts, AreDueOnceTheUsualTimeIsKnown) {
  SecondAttempts second;
  EXPECT_FALSE(second.knows_any());
  for (std::size_t i = 1; i < RuntimeEstimate::kEnough; ++i) second.ran("f", 50ms);
  EXPECT_TRUE(second.knows_any());
  EXPECT_EQ(second.due("f", at(1s)), Time::max());
  second.ran("f", 50ms);
  EXPECT_EQ(second.due("f", at(1s)), at(1150ms));
  EXPECT_EQ(second.due("g", at(1s)), Time::max());
}

TEST(SecondAttempts, EitherFindsTheOtherUntilTheyPart) {
  SecondAttempts second;
  Task a, b, c, d;
  EXPECT_FALSE(second.any());
  second.pair(a, b);
  second.pair(c, d);
  EXPECT_EQ(second.other(a), &b);
  EXPECT_EQ(second.other(b), &a);
  EXPECT_EQ(second.other(d), &c);
  EXPECT_EQ(second.part(b), &a);
  EXPECT_EQ(second.part(b), nullptr);
  EXPECT_EQ(second.other(a), nullptr);
  EXPECT_TRUE(second.any());
  EXPECT_EQ(second.part(c), &d);
  EXPECT_FALSE(second.any());
  EXPECT_EQ(second.begun(), 2u);
}

TEST(RuntimeEstimate, IsTheMedianOfTheLastRunsAndNeverTooShort) {
  RuntimeEstimate usual;
  for (int i = 0; i < 4; ++i) usual.add(1s);
  EXPECT_FALSE(usual.known());
  usual.add(9s);
  ASSERT_TRUE(usual.known());
  EXPECT_EQ(usual.too_long(), 3s);
  for (int i = 0; i < 31; ++i) usual.add(1ms);
  EXPECT_EQ(usual.too_long(), RuntimeEstimate::kAtLeast);
}

}  // namespace
}  // namespace troupe::client::second_attempts_test
