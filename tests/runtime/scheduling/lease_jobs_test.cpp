// Tests leases of several jobs: each gets its share of the workers, workers too many stop, and those
// in which a task has left threads stop last.
#include "tests/runtime/scheduling/lease_tables.hpp"

#include <gtest/gtest.h>
#include <algorithm>
#include <map>

namespace troupe::scheduling {
namespace {

using namespace std::chrono_literals;
using namespace lease_tables;

TEST(LeaseJobs, AWorkerServesItsJobOnlyAndAnIdleOneMakesPlace) {
  Table table(options(4, 1));
  table.request(1, 1, demand(1), 1, table.now, of_job(7));
  const auto first = pick<Granted>(table.settle()).at(0);
  table.returned(first.lease, table.now);
  EXPECT_TRUE(table.settle().empty());  // the worker stays warm
  table.request(2, 1, demand(1), 1, table.now, of_job(8));
  const auto events = table.settle();
  ASSERT_EQ(pick<StopWorker>(events).size(), 1u);
  EXPECT_EQ(pick<StopWorker>(events)[0].worker, first.worker);
  ASSERT_EQ(pick<StartWorker>(events).size(), 1u);
  EXPECT_EQ(pick<StartWorker>(events)[0].job, JobNumber{8});
  ASSERT_EQ(pick<Granted>(events).size(), 1u);
  EXPECT_NE(pick<Granted>(events)[0].worker, first.worker);
}

TEST(LeaseJobs, TwoBusyJobsEvenOutAndThenKeepTheirWorkers) {
  Table table(options(8, 4));
  table.request(1, 1, demand(1), 10'000, table.now, of_job(1));
  std::vector<Granted> running = pick<Granted>(table.settle());
  ASSERT_EQ(running.size(), 4u);
  table.request(2, 1, demand(1), 10'000, table.now, of_job(2));
  int stops = 0, stops_before = 0;
  std::map<OwnerId, int> now_running;
  for (int step = 0; step < 400; ++step) {
    table.now += 20ms;
    if (!running.empty()) {  // the oldest task ends
      table.returned(running.front().lease, table.now);
      running.erase(running.begin());
    }
    for (const auto& event : table.settle()) {
      if (const auto* grant = std::get_if<Granted>(&event)) running.push_back(*grant);
      if (const auto* stop = std::get_if<StopWorker>(&event)) {
        ++stops;
        table.worker_died(stop->worker, table.now);
      }
    }
    if (step == 200) stops_before = stops;
  }
  for (const auto& grant : running) ++now_running[grant.owner];
  EXPECT_EQ(now_running[1], 2);
  EXPECT_EQ(now_running[2], 2);
  EXPECT_EQ(stops, stops_before) << "workers are stopped and started without end";
}

TEST(LeaseJobs, AWorkerThatAsksForLeasesItselfIsStoppedLast) {
  Table table(options(1, 1));
  table.request(10, 1, demand(1), 1, table.now);
  const Granted first = pick<Granted>(table.settle()).at(0);
  table.blocked(first.worker, table.now);
  table.request(11, 1, demand(1), 1, table.now);
  const Granted second = pick<Granted>(table.until<Granted>(1)).at(0);
  table.request(first.worker, 1, demand(1), 1, table.now);
  table.returned(first.lease, table.now);  // two workers are there now, and one place
  EXPECT_TRUE(pick<StopWorker>(table.settle()).empty());
  table.returned(second.lease, table.now);
  EXPECT_EQ(pick<StopWorker>(table.settle()).at(0).worker, second.worker);
}

TEST(LeaseJobs, AWorkerThatHadALeaseOfItselfIsStoppedLast) {
  Table table(options(1, 1));
  table.request(10, 1, demand(1), 1, table.now);
  const Granted first = pick<Granted>(table.settle()).at(0);
  table.request(first.worker, 1, demand(1), 1, table.now);  // a thread of the call, which ends
  table.returned(first.lease, table.now);
  const Granted own = pick<Granted>(table.settle()).at(0);
  ASSERT_EQ(own.worker, first.worker);
  table.blocked(own.worker, table.now);
  table.request(11, 1, demand(1), 1, table.now);
  const Granted second = pick<Granted>(table.until<Granted>(1)).at(0);
  table.returned(own.lease, table.now);  // the thread may go on
  EXPECT_TRUE(pick<StopWorker>(table.settle()).empty());
  table.returned(second.lease, table.now);
  EXPECT_EQ(pick<StopWorker>(table.settle()).at(0).worker, second.worker);
}

TEST(LeaseJobs, AWorkerThatHadALeaseOfItselfMakesPlaceForAnotherJobLast) {
  Table table(options(2, 2));
  table.request(10, 1, demand(1), 2, table.now, of_job(7));
  const auto running = pick<Granted>(table.settle());
  ASSERT_EQ(running.size(), 2u);
  const WorkerId first = std::min(running[0].worker, running[1].worker);
  const Granted& of_first = running[running[0].worker == first ? 0 : 1];
  const Granted& of_second = running[running[0].worker == first ? 1 : 0];
  table.request(first, 1, demand(1), 1, table.now, of_job(7));  // a thread of the call, which ends
  table.returned(of_first.lease, table.now);
  const Granted own = pick<Granted>(table.settle()).at(0);
  ASSERT_EQ(own.worker, first);
  table.request(11, 1, demand(2), 1, table.now, of_job(8));
  table.now += 3s;  // longer than its patience
  table.returned(own.lease, table.now);
  EXPECT_TRUE(pick<StopWorker>(table.settle()).empty());
  table.returned(of_second.lease, table.now);
  EXPECT_EQ(pick<StopWorker>(table.settle()).at(0).worker, of_second.worker);
}

TEST(LeaseJobs, OnePlaceGoesFromJobToJobByPatience) {
  Table table(options(8, 1));
  table.request(1, 1, demand(1), 1'000'000, table.now, of_job(1));
  table.request(2, 1, demand(1), 1'000'000, table.now, of_job(2));
  std::vector<Granted> running = pick<Granted>(table.settle());
  std::map<OwnerId, int> served;
  int stops = 0;
  for (int step = 0; step < 1000; ++step) {  // 10 s of tasks of 10 ms
    table.now += 10ms;
    if (!running.empty()) {
      ++served[running.front().owner];
      table.returned(running.front().lease, table.now);
      running.erase(running.begin());
    } else {
      table.on_timer(table.now);
    }
    for (const auto& event : table.settle()) {
      if (const auto* grant = std::get_if<Granted>(&event)) running.push_back(*grant);
      if (const auto* stop = std::get_if<StopWorker>(&event)) {
        ++stops;
        table.worker_died(stop->worker, table.now);
      }
    }
  }
  EXPECT_GT(served[1], 300);
  EXPECT_GT(served[2], 300);
  EXPECT_LE(stops, 6);  // one for each patience of 2 s
}

TEST(LeaseJobs, NoLeaseIsReclaimedForAJobThatCouldNotUseIt) {
  Table table(options(8, 2));
  table.request(1, 1, demand(1), 3, table.now, of_job(1));
  table.request(2, 1, demand(1), 2, table.now, of_job(2));
  const auto grants = pick<Granted>(table.settle());
  ASSERT_EQ(grants.size(), 2u);
  EXPECT_NE(grants[0].owner, grants[1].owner);  // one worker for each owner
  table.now += 1s;
  table.on_timer(table.now);
  EXPECT_TRUE(pick<ReclaimLease>(table.settle()).empty());
}

TEST(LeaseJobs, AJobsEndStopsItsIdleWorkersAndThoseUnderWay) {
  Table table(options(8, 4));
  table.request(1, 1, demand(1), 1, table.now, of_job(1));
  table.returned(pick<Granted>(table.settle()).at(0).lease, table.now);
  table.request(1, 1, demand(1), 3, table.now, of_job(1));
  const auto begun = table.take_events();
  const auto grant = pick<Granted>(begun).at(0);
  ASSERT_EQ(pick<StartWorker>(begun).size(), 2u);
  table.request(2, 1, demand(1), 1, table.now, of_job(2));
  table.job_ended(1, table.now);
  EXPECT_EQ(table.waiting(), 1u);
  table.worker_started(101, table.now, false, 1);
  table.worker_started(102, table.now, false, 1);
  const auto events = table.settle();
  EXPECT_EQ(pick<StopWorker>(events).size(), 2u);
  ASSERT_EQ(pick<Granted>(events).size(), 1u);
  EXPECT_EQ(pick<Granted>(events)[0].owner, OwnerId{2});
  table.owner_died(1, table.now);
  ASSERT_EQ(pick<StopWorker>(table.settle()).size(), 1u);
  table.worker_died(grant.worker, table.now);
  EXPECT_EQ(table.lease_count(), 1u);
}

TEST(LeaseJobs, AWorkerThatALateRequestOfAnEndedJobGotStopsWithItsLease) {
  Table table(options(8, 4));
  table.job_ended(1, table.now);
  table.request(2, 1, demand(1), 1, table.now, of_job(1));  // from a node that did not know
  const auto grant = pick<Granted>(table.settle()).at(0);
  table.job_ended(1, table.now);  // called again for each worker that comes up for an ended job
  EXPECT_TRUE(pick<StopWorker>(table.settle()).empty());
  table.returned(grant.lease, table.now);
  const auto stopped = pick<StopWorker>(table.settle());
  ASSERT_EQ(stopped.size(), 1u);
  EXPECT_EQ(stopped[0].worker, grant.worker);
}

TEST(LeaseJobs, AnActorOfAnEndedJobStillGetsItsWorker) {
  Table table(options(8, 4));
  const RequestKind kind{.spilled = false, .dedicated = true, .job = 1};
  table.request(1, 1, demand(1), 1, table.now, kind);
  table.request(1, 2, demand(1), 1, table.now, kind);
  ASSERT_EQ(pick<StartWorker>(table.take_events()).size(), 2u);
  table.job_ended(1, table.now);
  table.worker_started(101, table.now, true, 1);
  table.request(1, 2, demand(1), 0, table.now, kind);  // that actor ended with its job
  table.worker_started(102, table.now, true, 1);
  const auto events = table.settle();
  ASSERT_EQ(pick<Granted>(events).size(), 1u);
  EXPECT_EQ(pick<Granted>(events)[0].worker, WorkerId{101});
  ASSERT_EQ(pick<StopWorker>(events).size(), 1u);
  EXPECT_EQ(pick<StopWorker>(events)[0].worker, WorkerId{102});
}

// The table is told of the job's end while its actor still waits for a worker.
TEST(LeaseJobs, AWorkerForAnActorThatEndsBeforeItGetsItStops) {
  Table table(options(1, 1));
  const RequestKind kind{.spilled = false, .dedicated = true, .job = 1};
  table.request(1, 1, demand(1), 1, table.now, kind);
  ASSERT_EQ(pick<StartWorker>(table.take_events()).size(), 1u);
  table.job_ended(1, table.now);
  table.request(2, 1, demand(1), 1, table.now, of_job(2));  // takes what the actor needs
  table.worker_started(200, table.now, false, 2);
  table.worker_started(101, table.now, true, 1);
  table.job_ended(1, table.now);
  auto events = table.settle();
  ASSERT_EQ(pick<Granted>(events).size(), 1u);
  ASSERT_EQ(pick<Granted>(events)[0].worker, WorkerId{200});
  EXPECT_TRUE(pick<StopWorker>(events).empty()) << "the actor waits for it";
  table.request(1, 1, demand(1), 0, table.now, kind);
  events = table.settle();
  ASSERT_EQ(pick<StopWorker>(events).size(), 1u);
  EXPECT_EQ(pick<StopWorker>(events)[0].worker, WorkerId{101});
}

}  // namespace
}  // namespace troupe::scheduling
