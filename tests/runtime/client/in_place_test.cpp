// Tests tasks that run in place, by the worker that awaits them: which tasks may be claimed, how
// a claim ends, and how the rest of the task manager treats a claimed task.
#include "troupe/runtime/base/random.hpp"
#include "troupe/runtime/client/tasks.hpp"

#include <gtest/gtest.h>
#include <deque>
#include <map>
#include <vector>

namespace troupe::client::in_place {
namespace {

using namespace std::chrono_literals;

Time after(Duration d) {
  return Time{} + 1s + d;
}

struct Place {
  std::uint64_t place = 0;
};
using PlacesReady = ReadyQueue<Place, &Place::place>;

TEST(ReadyQueue, IsAQueueFromWhichAnyCanBeTaken) {
  PlacesReady ready;
  std::deque<Place> all(4000);
  std::deque<Place*> model;
  Random random(7);
  std::size_t next = 0;
  for (int step = 0; step < 20'000; ++step) {
    const auto what = random.below(4);
    if (what <= 1 && next < all.size()) {
      Place& one = all[next++];
      if (what == 0) ready.push_back(one), model.push_back(&one);
      if (what == 1) ready.push_front(one), model.push_front(&one);
    } else if (what == 2 && !model.empty()) {
      ASSERT_EQ(ready.front(), model.front());
      ready.pop_front();
      model.pop_front();
    } else if (what == 3 && !model.empty()) {
      const auto at = model.begin() + static_cast<std::ptrdiff_t>(random.below(model.size()));
      ASSERT_TRUE(ready.holds(**at));
      ready.erase(**at);
      EXPECT_FALSE(ready.holds(**at));
      model.erase(at);
    }
    ASSERT_EQ(ready.size(), model.size());
    ASSERT_EQ(ready.empty(), model.empty());
  }
}

TEST(ReadyQueue, HolesAreClosed) {
  PlacesReady ready;
  std::deque<Place> all(10'002);
  ready.push_back(all[0]);
  ready.push_back(all[1]);
  for (std::size_t i = 2; i < all.size(); ++i) {  // keeps one at either end
    ready.push_back(all[i]);
    ready.erase(all[i - 1]);
  }
  EXPECT_EQ(ready.size(), 2u);
  EXPECT_EQ(ready.behind(3 * PlacesReady::kHoles), nullptr) << "10,000 holes are kept";
  ready.pop_front();
  EXPECT_EQ(ready.front(), &all.back());
}

const detail::Callable kPlain{[](detail::Invocation&) {}, detail::CallableKind::function};

struct SentTask {
  ProcessIndex worker;
  int task;
  bool operator==(const SentTask&) const = default;
};

struct Recorder final : TaskManager::Out {
  std::vector<SentTask> sent;
  std::vector<ProcessIndex> recalled;
  std::vector<std::pair<LeaseKey, std::uint32_t>> requests;
  std::map<ProcessIndex, std::uint64_t> sequence, started;
  int came_back = 0;
  static int name(const Task& task) { return static_cast<int>(task.call.bytes.at(0)); }
  bool send(ProcessIndex worker, Task& task) override {
    task.sequence = ++sequence[worker];
    sent.push_back({worker, name(task)});
    return true;
  }
  void request_lease(LeaseKey key, std::uint32_t n) override { requests.emplace_back(key, n); }
  void return_lease(LeaseId) override {}
  void recall(ProcessIndex worker) override { recalled.push_back(worker); }
  void fail(Task&, const Error&) override {}
  bool may_come_back(ProcessIndex worker, std::uint64_t number) override {
    return number > started[worker];
  }
  void claim_came_back() override { ++came_back; }
};

struct InPlace : testing::Test {
  Recorder out;
  TaskManager tasks{out};
  const Error died{Code::worker_died, "killed"};

  Task* submit(int name, std::uint16_t waiting = 0) {
    auto task = std::make_unique<Task>();
    task->key = 1;
    task->call.callable = &kPlain;
    task->call.bytes.assign(1, static_cast<std::byte>(name));
    task->waiting = waiting;
    Task* raw = task.get();
    tasks.submit(std::move(task), after(0ms));
    return raw;
  }
  /// Makes worker 5's calls known to be short, so that many wait in its ring.
  void stream(int first, int last, std::vector<Task*>& into) {
    submit(99);
    tasks.granted(1, 10, 5, after(0ms));
    tasks.ended(5, 1, 1us, after(0ms));
    for (int name = first; name <= last; ++name) into.push_back(submit(name));
    out.sent.clear();
  }
};

TEST_F(InPlace, AReadyTaskIsTheWaitersAtOnceAndIsNeverSent) {
  Task* first = submit(1);
  Task* second = submit(2);
  out.requests.clear();
  EXPECT_EQ(tasks.claim(*first, after(0ms)), Claim::Answer::run);
  EXPECT_TRUE(out.requests.empty()) << "the next one may follow at once";
  EXPECT_EQ(tasks.queued(), 1u);
  tasks.granted(1, 10, 5, after(0ms));
  ASSERT_EQ(out.sent.size(), 1u);
  EXPECT_EQ(out.sent[0].task, 2);
  EXPECT_EQ(tasks.ended_here(*first).get(), first);
  EXPECT_EQ(tasks.claim(*second, after(0ms)), Claim::Answer::wait) << "it is in a ring";
  EXPECT_EQ(tasks.run_here(), 1u);
}

TEST_F(InPlace, WhatIsAskedTooMuchIsTakenBackLater) {
  Task* task = submit(1);
  EXPECT_EQ(tasks.claim(*task, after(0ms)), Claim::Answer::run);
  tasks.ended_here(*task);
  tasks.tick(after(1ms));
  EXPECT_EQ(out.requests.back().second, 1u);
  tasks.tick(after(101ms));
  EXPECT_EQ(out.requests.back().second, 0u);
  EXPECT_EQ(tasks.tick(after(102ms)), Time::max());
}

TEST_F(InPlace, OneRecallBringsAClaimedTaskBackToItsWaiterBeforeAnythingElse) {
  std::vector<Task*> all;
  stream(1, 3, all);
  out.started[5] = 2;  // the first call runs
  EXPECT_EQ(tasks.claim(*all[2], after(0ms)), Claim::Answer::wait);
  tasks.recall_claimed();
  tasks.recall_claimed();
  EXPECT_EQ(out.recalled, std::vector<ProcessIndex>{5});
  tasks.granted(1, 11, 6, after(0ms));  // a lease that could take the task
  tasks.handed_back(5, 3, 2, after(0ms));
  EXPECT_EQ(out.came_back, 1);
  EXPECT_TRUE(tasks.claim_returned());
  EXPECT_EQ(tasks.take_returned(after(0ms)), all[2]);
  EXPECT_FALSE(tasks.claim_returned());
  EXPECT_EQ(out.sent, (std::vector<SentTask>{{6, 2}})) << "only the other one";
  tasks.ended_here(*all[2]);
  EXPECT_EQ(tasks.live(), 2u);
}

TEST_F(InPlace, ATaskThatHasBegunIsNotRecalled) {
  std::vector<Task*> all;
  stream(1, 1, all);
  out.started[5] = 2;
  EXPECT_EQ(tasks.claim(*all[0], after(0ms)), Claim::Answer::wait);
  tasks.recall_claimed();
  EXPECT_TRUE(out.recalled.empty());
  tasks.ended(5, 2, 1us, after(0ms));
  EXPECT_FALSE(tasks.claim_returned());
  Task* next = submit(2);
  EXPECT_EQ(tasks.claim(*next, after(0ms)), Claim::Answer::wait) << "the end ended the claim";
}

TEST_F(InPlace, ATaskWhoseWorkerDiedComesBackOnlyIfItHadNotBegun) {
  std::vector<Task*> all;
  stream(1, 2, all);
  EXPECT_EQ(tasks.claim(*all[0], after(0ms)), Claim::Answer::wait);
  tasks.worker_died(5, 2, died, true, after(0ms));
  EXPECT_FALSE(tasks.claim_returned()) << "it was begun, and may have killed the worker";
  EXPECT_EQ(tasks.queued(), 2u);
  EXPECT_EQ(tasks.claim(*all[0], after(0ms)), Claim::Answer::no) << "its second attempt";
  EXPECT_EQ(tasks.claim(*all[1], after(0ms)), Claim::Answer::run);
}

TEST_F(InPlace, ATaskComesBackFromItsArguments) {
  Task* task = submit(1, 1);
  EXPECT_EQ(tasks.claim(*task, after(0ms)), Claim::Answer::wait);
  tasks.argument_ready(*task, after(0ms));
  EXPECT_EQ(tasks.take_returned(after(0ms)), task);
}

TEST_F(InPlace, WhoGivesUpLeavesTheTaskToOthers) {
  Task* task = submit(1, 1);
  EXPECT_EQ(tasks.claim(*task, after(0ms)), Claim::Answer::wait);
  tasks.argument_ready(*task, after(0ms));
  tasks.granted(1, 10, 5, after(0ms));
  EXPECT_TRUE(out.sent.empty()) << "it is the waiter's";
  tasks.unclaim(after(0ms));
  EXPECT_EQ(out.sent.size(), 1u);
  EXPECT_EQ(tasks.take_returned(after(0ms)), nullptr);
}

TEST_F(InPlace, APoolWithARecentRunSendsOneCallAWorker) {
  std::vector<Task*> all;
  stream(1, 0, all);
  Task* waits = submit(1, 1);
  EXPECT_EQ(tasks.claim(*waits, after(0ms)), Claim::Answer::wait);
  tasks.argument_ready(*waits, after(0ms));
  EXPECT_EQ(tasks.take_returned(after(0ms)), waits);
  for (int name = 2; name <= 5; ++name) submit(name);
  EXPECT_EQ(out.sent.size(), 1u);
  EXPECT_EQ(tasks.open_way(1), ProcessIndex{});
  EXPECT_LE(tasks.tick(after(1ms)), after(10ms));
  EXPECT_EQ(out.sent.size(), 1u);
  tasks.tick(after(10ms));
  EXPECT_EQ(out.sent.size(), 4u) << "later they stream";
}

TEST_F(InPlace, WhereManyAreReadyTheyStreamAllTheSame) {
  std::vector<Task*> all;
  stream(1, 0, all);
  Task* waits = submit(1, 1);
  EXPECT_EQ(tasks.claim(*waits, after(0ms)), Claim::Answer::wait);
  tasks.argument_ready(*waits, after(0ms));
  EXPECT_EQ(tasks.take_returned(after(0ms)), waits);
  for (int name = 2; name <= 100; ++name) submit(name);
  EXPECT_GT(out.sent.size(), 10u);
  EXPECT_LT(out.sent.size(), 14u) << "an eighth of them";
}

TEST_F(InPlace, ARetryIsNotRunHere) {
  Task* task = submit(1);
  EXPECT_EQ(tasks.claim(*task, after(0ms)), Claim::Answer::run);
  EXPECT_TRUE(tasks.retry_here(*task, after(0ms)));
  EXPECT_EQ(tasks.queued(), 1u);
  EXPECT_EQ(tasks.claim(*task, after(0ms)), Claim::Answer::no);
}

TEST(MayRunInPlace, OnlyFirstAttemptsOfPlainFunctions) {
  Task task;
  task.call.callable = &kPlain;
  EXPECT_TRUE(may_run_in_place(task));
  const auto refuses = [](const auto& change) {
    Task other;
    other.call.callable = &kPlain;
    change(other);
    return !may_run_in_place(other);
  };
  EXPECT_TRUE(refuses([](Task& t) { t.attempt = 2; }));
  EXPECT_TRUE(refuses([](Task& t) { t.killed = 1; }));
  EXPECT_TRUE(refuses([](Task& t) { t.may_have_run = true; }));
  EXPECT_TRUE(refuses([](Task& t) { t.had_second_attempt = true; }));
  EXPECT_TRUE(refuses([](Task& t) { t.fate = Task::Fate::superseded; }));
  static const detail::Callable coroutine = [] {
    detail::Callable callable = kPlain;
    callable.is_coroutine = true;
    return callable;
  }();
  EXPECT_TRUE(refuses([](Task& t) { t.call.callable = &coroutine; }));
  const auto asks = [](auto change) {
    detail::Request request;
    change(request);
    return [request](Task& t) { t.request = std::make_unique<const detail::Request>(request); };
  };
  EXPECT_FALSE(refuses(asks([](detail::Request& r) { r.cpus = 2; })));
  EXPECT_TRUE(refuses(asks([](detail::Request& r) { r.isolated = true; })));
  EXPECT_TRUE(refuses(asks([](detail::Request& r) { r.second_attempt = true; })));
}

TEST(Covers, TheLeaseOfTheWaiterHasWhatTheTaskAsksFor) {
  const NodeId here{1, 1}, there{2, 2};
  wire::ResourceDemand lease, task;
  EXPECT_TRUE(covers(lease, task, here));
  lease.cpus = 5'000;
  task.cpus = 5'000;
  EXPECT_FALSE(covers(lease, task, here)) << "half a CPU is shared";
  lease.cpus = 20'000;
  task.cpus = 20'000;
  EXPECT_TRUE(covers(lease, task, here));
  task.cpus = 20'001;
  EXPECT_FALSE(covers(lease, task, here));
  task.cpus = 0;
  EXPECT_TRUE(covers(lease, task, here));
  task.memory_bytes = 1;
  EXPECT_FALSE(covers(lease, task, here));
  lease.memory_bytes = 1;
  task.resources = {{"tpu", 10}};
  EXPECT_FALSE(covers(lease, task, here));
  lease.resources = {{"disk", 1}, {"tpu", 10}};
  EXPECT_TRUE(covers(lease, task, here));
  task.labels = {{"zone", "a"}};
  EXPECT_FALSE(covers(lease, task, here));
  lease.labels = {{"zone", "a"}};
  EXPECT_TRUE(covers(lease, task, here));
  task.placement = 2;  // spread
  EXPECT_FALSE(covers(lease, task, here));
  task.placement = 3;
  task.node = there;
  EXPECT_FALSE(covers(lease, task, here));
  task.node = here;
  EXPECT_TRUE(covers(lease, task, here));
  lease.gpus = 10'000;
  EXPECT_FALSE(covers(lease, task, here)) << "a GPU is not kept from others meanwhile";
}

TEST(StackRoom, LeavesAQuarterOfAMebibyteOrAnEighth) {
  constexpr std::size_t kMiB = 1 << 20;
  const StackRoom large(0x10000000, 8 * kMiB), small(0x10000000, kMiB);
  EXPECT_TRUE(large.is_enough(0x10000000 + kMiB));
  EXPECT_FALSE(large.is_enough(0x10000000 + kMiB - 1));
  EXPECT_TRUE(small.is_enough(0x10000000 + kMiB / 4));
  EXPECT_FALSE(small.is_enough(0x10000000 + kMiB / 4 - 1));
  EXPECT_FALSE(small.is_enough(0x10000000 + kMiB)) << "another stack";
  EXPECT_FALSE(small.is_enough(0x0fffffff));
  EXPECT_FALSE(StackRoom().is_enough(1));
  const StackRoom mine = StackRoom::of_this_thread();
  EXPECT_TRUE(mine.is_enough(reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0))));
}

}  // namespace
}  // namespace troupe::client::in_place
