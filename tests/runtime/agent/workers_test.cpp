// Tests Workers on a private node, with a zygote that cannot start or that a shell plays: WORKER-1
// to WORKER-4.
#include "troupe/runtime/agent/workers.hpp"

#include "tests/runtime/agent/played_child.hpp"
#include "tests/runtime/agent/played_processes.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

namespace troupe::agent::workers_test {
namespace {

using namespace std::chrono_literals;
constexpr JobId kJob{0, 9};

struct WorkersTest : testing::Test, PlayedProcesses, Workers::Out, StackAsks::Out {
  WorkersTest() : PlayedProcesses(one_cpu()) {}
  ~WorkersTest() override { workers.end_all(); }
  // Workers::Out
  void end(Process& worker) override {
    ended.emplace_back(worker.index, worker.reason);
    processes.remove(worker.index);
  }
  void job_failed(Job& one, const std::string& why) override {
    failed.push_back(why);
    for (const bool dedicated : jobs.failed(one, why))
      table.worker_start_failed(now, dedicated, one.number);
  }
  void go_down(const std::string& why) override { over = why; }
  bool is_over() const override { return !over.empty(); }
  void answer_stacks(const Asker&, const std::string&) override {}

  /// Asks the table for a worker and returns how many starts it asks for.
  std::size_t request() { return request(job().number); }
  std::size_t request(JobNumber number) {
    scheduling::RequestKind kind;
    kind.job = number;
    table.request(1, LeaseKey::of(9), one_cpu_wanted(), 1, now, kind);
    return starts();
  }
  std::size_t starts() {
    std::size_t count = 0;
    for (const auto& event : table.take_events())
      count += std::holds_alternative<scheduling::StartWorker>(event);
    return count;
  }
  Job& job() { return jobs.of(kJob); }
  void run(const std::string& path, const std::string& script = "") {
    job().state = Job::State::ready;
    job().program.path = path;
    if (!script.empty()) job().program.arguments = {"bash", "-c", script};
  }
  /// The zygote of the job is a shell that takes orders until its socket closes.
  void run_zygote() { run("/bin/bash", "fd=${TROUPE_ROLE#*:}; exec cat <&${fd%%:*} >/dev/null"); }
  /// Returns a worker that serves and whose process is a child that does nothing.
  Process& serving() {
    Process& process = processes.add({});
    process.kind = wire::ProcessKind::worker;
    process.job_number = job().number;
    process.introduced = true;
    process.pid = child.start();
    return process;
  }

  Time now{100s};
  PlayedChild child;
  std::vector<std::pair<ProcessIndex, std::string>> ended;
  std::vector<std::string> failed;
  std::string over;
  std::unique_ptr<Programs> programs;
  std::unique_ptr<NodeLogs> logs;
  StackAsks stacks{*this};
  Jobs jobs{quiet_actors, {.is_private = true}};
  Workers workers{{name, events, processes, jobs, table, actors, programs, logs, stacks, *this}};
};

TEST_F(WorkersTest, StartOfAnUnknownJobFailsAtOnce) {
  constexpr JobNumber kUnknown = 77;
  ASSERT_EQ(request(kUnknown), 1u);
  table.on_timer(steady_now() + 1min);
  EXPECT_EQ(starts(), 0u) << "the table waits for that start";
  workers.start_worker(false, kUnknown);
  table.on_timer(steady_now() + 2min);
  EXPECT_EQ(starts(), 1u) << "it tries once more";
  EXPECT_TRUE(ended.empty() && failed.empty());
  EXPECT_EQ(processes.begin(), processes.end());
}

TEST_F(WorkersTest, ProgramThatCannotStartFailsTheJob) {
  run("/nowhere/at/all");
  ASSERT_EQ(request(), 1u);
  workers.start_worker(false, job().number);
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_NE(failed[0].find("/nowhere/at/all"), std::string::npos) << failed[0];
  EXPECT_EQ(processes.begin(), processes.end());
}

TEST_F(WorkersTest, WorkerThatIsGoneWhileItStartsIsAFailedStartAndEnds) {
  run_zygote();
  ASSERT_EQ(request(), 1u);
  workers.start_worker(false, job().number);
  ASSERT_NE(processes.begin(), processes.end());
  const ProcessIndex index = processes.begin()->first;
  EXPECT_TRUE(processes.find(index)->starting);
  workers.gone(index, "a test ends it");
  workers.gone(index, "it is known no more");
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].second, "a test ends it");
  EXPECT_EQ(job().failed_starts, 1);
}

TEST_F(WorkersTest, TenFailedStartsInARowEndAPrivateNode) {
  run_zygote();
  ASSERT_EQ(request(), 1u);
  for (int i = 1; i <= 10; ++i) {
    EXPECT_EQ(over, "");
    workers.start_worker(false, job().number);
    ASSERT_NE(processes.begin(), processes.end());
    workers.gone(processes.begin()->first, "a test ends it");
  }
  EXPECT_NE(over.find("a test ends it"), std::string::npos) << over;
}

TEST_F(WorkersTest, StartAtALimitOfTheSystemIsNoFailure) {
  run_zygote();
  ASSERT_EQ(request(), 1u);
  workers.start_worker(false, job().number);
  const ProcessIndex index = processes.begin()->first;
  workers.not_forked(index, EAGAIN);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_NE(ended[0].second.find("fork failed"), std::string::npos) << ended[0].second;
  EXPECT_EQ(job().failed_starts, 0);
}

TEST_F(WorkersTest, WorkerThatIsToEndIsKilledWhenItsPidIsKnown) {
  Process& worker = serving();
  worker.pid = 0;
  processes.kill(worker);
  workers.forked(job().number, worker.index, child.pid());
  EXPECT_TRUE(child.is_killed());
}

TEST_F(WorkersTest, WorkerThatWasBrokenOffIsKilledWhenItsPidIsKnown) {
  Process& worker = serving();
  worker.pid = 0;
  processes.break_off(worker, "its ring is damaged");
  workers.forked(job().number, worker.index, child.pid());
  EXPECT_TRUE(child.is_killed());
}

TEST_F(WorkersTest, UnknownWorkerIsKilledWhenItsPidIsKnown) {
  serving();
  processes.remove(processes.begin()->first);
  workers.forked(job().number, 1, child.pid());
  EXPECT_TRUE(child.is_killed());
}

TEST_F(WorkersTest, WorkerThatWasToldToEndAndIsLateIsKilled) {
  Process& worker = serving();
  const Time before = steady_now();
  workers.end_tasks(job().number);
  workers.on_timer(before);
  EXPECT_FALSE(worker.killed);
  EXPECT_LE(workers.next_deadline(), steady_now() + EndingWorkers::kPatience);
  workers.on_timer(steady_now() + EndingWorkers::kPatience);
  EXPECT_TRUE(worker.killed);
  EXPECT_TRUE(child.is_killed());
}

TEST_F(WorkersTest, WorkerOfAnActorOutlivesTheTasksOfItsJob) {
  Process& worker = serving();
  worker.starting = worker.dedicated = true;
  workers.end_tasks(job().number);
  workers.on_timer(steady_now() + EndingWorkers::kPatience);
  EXPECT_FALSE(worker.killed);
  worker.starting = false;  // without a purpose it ends like the others
  workers.end_tasks(job().number);
  workers.on_timer(steady_now() + EndingWorkers::kPatience);
  EXPECT_TRUE(worker.killed);
}

TEST_F(WorkersTest, WorkersThatWereNotForkedEndWithTheirJob) {
  Process& worker = serving();
  worker.pid = 0;
  workers.end_unborn(job().number, "its job has ended");
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].second, "its job has ended");
}

}  // namespace
}  // namespace troupe::agent::workers_test
