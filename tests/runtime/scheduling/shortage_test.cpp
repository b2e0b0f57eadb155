/// Tests a node that is short of processes: which requests wait for one, and which are refused.
#include "troupe/runtime/agent/process_limit.hpp"
#include "troupe/runtime/scheduling/lease_table.hpp"

#include <gtest/gtest.h>

namespace shortage_test {
namespace {

using namespace std::chrono_literals;
using namespace troupe::scheduling;
using troupe::JobNumber;
using troupe::LeaseKey;
using troupe::NodeId;
using troupe::Time;

constexpr JobNumber kJob = 1;

struct ShortOfProcesses : testing::Test {
  /// Answers every requested start at once, as long as `system_room` lasts.
  void serve() {
    for (auto events = table.take_events(); !events.empty(); events = table.take_events())
      for (auto& event : events) {
        if (const auto* start = std::get_if<StartWorker>(&event)) {
          if (system_room == 0) {
            table.worker_start_refused(now, start->dedicated, start->job, "fork failed");
          } else {
            --system_room;
            table.worker_started(++last_worker, now, start->dedicated, start->job);
          }
        }
        if (const auto* grant = std::get_if<Granted>(&event)) granted.push_back(*grant);
        if (const auto* no = std::get_if<Refused>(&event)) refused.push_back(*no);
      }
  }
  void actor(LeaseKey key) {
    table.request(7, key, {}, 1, now, {.spilled = false, .dedicated = true, .job = kJob});
    serve();
  }
  void pass(troupe::Duration time) {
    const Time until = now + time;
    for (auto due = table.next_deadline(); due && *due <= until; due = table.next_deadline()) {
      now = std::max(now, *due);
      table.on_timer(now);
      serve();
    }
    now = until;
  }

  Time now{1s};
  int system_room = 1000;
  LeaseTable table{{.total = {.cpus = 4 * kUnit},
                    .max_workers = 4,
                    .max_processes = 3,
                    .process_limit = "the test allows 3"},
                   NodeId{0, 1}};
  WorkerId last_worker;
  std::vector<Granted> granted;
  std::vector<Refused> refused;
};

TEST_F(ShortOfProcesses, OnlyWhoDoesNotFitIsRefusedByTheNameOfTheLimit) {
  for (LeaseKey key = 1; key <= 4; ++key) actor(key);
  EXPECT_EQ(granted.size(), 3u);
  EXPECT_NE(table.explain(7, 4).find("the test allows 3"), std::string::npos);
  pass(900ms);
  EXPECT_TRUE(refused.empty());
  pass(100ms);
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].key, LeaseKey{4});
  EXPECT_NE(refused[0].why.find("the test allows 3"), std::string::npos);
}

TEST_F(ShortOfProcesses, APlaceThatComesFreeIsUsed) {
  for (LeaseKey key = 1; key <= 5; ++key) actor(key);
  pass(900ms);
  table.worker_died(granted[0].worker, now);
  serve();
  EXPECT_EQ(granted.size(), 4u);
  pass(900ms);  // the patience of the other request began anew
  EXPECT_TRUE(refused.empty());
  pass(100ms);
  EXPECT_EQ(refused.size(), 1u);
}

/// Starts that take long help no further actor. Those that will get a process keep waiting.
TEST_F(ShortOfProcesses, TheLastActorIsRefusedBeforeTheOthersHaveStarted) {
  for (LeaseKey key = 1; key <= 4; ++key)
    table.request(7, key, {}, 1, now, {.spilled = false, .dedicated = true, .job = kJob});
  std::size_t starts = 0;
  for (const auto& event : table.take_events())
    starts += std::holds_alternative<StartWorker>(event);
  EXPECT_EQ(starts, 3u);
  pass(1s);
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].key, LeaseKey{4});
  pass(3s);
  EXPECT_EQ(refused.size(), 1u);
  for (int i = 0; i < 3; ++i) table.worker_started(++last_worker, now, true, kJob);
  serve();
  EXPECT_EQ(granted.size(), 3u);
}

TEST_F(ShortOfProcesses, AnActorWaitsForOneThatIsEnding) {
  for (LeaseKey key = 1; key <= 3; ++key) actor(key);
  table.returned(granted[0].lease, now);
  serve();
  actor(4);
  pass(4s);
  EXPECT_TRUE(refused.empty());
  table.worker_died(granted[0].worker, now);
  serve();
  EXPECT_EQ(granted.size(), 4u);
}

TEST_F(ShortOfProcesses, ActorsLeaveProcessesForTasks) {
  table = LeaseTable({.total = {.cpus = 4 * kUnit},
                      .max_workers = 4,
                      .max_processes = 6,
                      .kept_processes = 2,
                      .process_limit = "the test allows 6"},
                     NodeId{0, 1});
  for (LeaseKey key = 1; key <= 5; ++key) actor(key);
  EXPECT_EQ(granted.size(), 4u);
  EXPECT_EQ(table.self_view().most_actors, 4u);
  pass(1s);
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].why,
            "the node runs 4 actors, keeps room for 2 tasks, and has room for no more actors: the "
            "test allows 6; let go of actors, or use more nodes");
  ResourceDemand demand;
  demand.need.cpus = kUnit;
  table.request(7, 10, demand, 3, now, {.spilled = false, .dedicated = false, .job = kJob});
  serve();
  EXPECT_EQ(granted.size(), 6u);
  pass(60s);
  EXPECT_EQ(refused.size(), 1u) << "a worker of its job may take the third task";
}

TEST_F(ShortOfProcesses, WorkersBeyondThoseThatAreKeptLeaveRoomForFewerActors) {
  table = LeaseTable({.total = {.cpus = 4 * kUnit},
                      .max_workers = 4,
                      .max_processes = 6,
                      .kept_processes = 2,
                      .process_limit = "the test allows 6"},
                     NodeId{0, 1});
  ResourceDemand demand;
  demand.need.cpus = kUnit;
  table.request(7, 10, demand, 3, now, {.spilled = false, .dedicated = false, .job = kJob});
  serve();
  EXPECT_EQ(table.self_view().most_actors, 3u);
  for (LeaseKey key = 1; key <= 4; ++key) actor(key);
  EXPECT_EQ(granted.size(), 6u);
  EXPECT_NE(table.explain(7, 4).find("3 actors and 3 other workers"), std::string::npos);
}

TEST_F(ShortOfProcesses, ATaskWaitsForAWorkerOfItsJobThatRuns) {
  ResourceDemand demand;
  demand.need.cpus = kUnit;
  table.request(7, 1, demand, 1, now, {.spilled = false, .dedicated = false, .job = kJob});
  serve();
  ASSERT_EQ(granted.size(), 1u);
  actor(2);
  actor(3);
  table.request(8, 1, demand, 1, now, {.spilled = false, .dedicated = false, .job = kJob});
  serve();
  pass(60s);
  EXPECT_TRUE(refused.empty());
  table.blocked(granted[0].worker, now);  // no worker is left that could run the task
  serve();
  pass(6s);
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].owner, OwnerId{8});
}

TEST_F(ShortOfProcesses, AForkThatTheSystemRefusesIsTriedAgainAndThenRefused) {
  system_room = 0;
  actor(1);
  pass(1s);
  system_room = 1;
  pass(1s);
  EXPECT_EQ(granted.size(), 1u);
  actor(2);
  pass(6s);
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].why, "fork failed");
}

TEST(ProcessLimit, NamesTheSmallerOne) {
  EXPECT_EQ(troupe::agent::process_limit(1024, 1 << 20).workers, 1008u);
  EXPECT_NE(troupe::agent::process_limit(1024, 1 << 20).why.find("1024"), std::string::npos);
  EXPECT_EQ(troupe::agent::process_limit(1024, 256).workers, 32u);
  EXPECT_NE(troupe::agent::process_limit(1024, 256).why.find("ulimit -n"), std::string::npos);
  EXPECT_EQ(troupe::agent::process_limit(1024, 10).workers, 1u);
}

TEST(ProcessLimit, WorkersOfTasksAreKeptButNoMoreThanAQuarter) {
  EXPECT_EQ(troupe::agent::kept_for_tasks(1008, 2), 4u);
  EXPECT_EQ(troupe::agent::kept_for_tasks(1008, 1000), 252u);
  EXPECT_EQ(troupe::agent::kept_for_tasks(32, 64), 8u);
  EXPECT_EQ(troupe::agent::kept_for_tasks(1, 1), 0u);
}

}  // namespace
}  // namespace shortage_test
