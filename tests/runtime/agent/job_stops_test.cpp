// Tests JobStops: JOBSTOP-1.
#include "troupe/runtime/agent/job_stops.hpp"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

namespace troupe::agent {
namespace {

using namespace std::chrono_literals;

Fd some_handle() {
  return Fd(eventfd(0, EFD_CLOEXEC));
}

TEST(JobStops, ADriverHasItsGraceFromTheFirstStop) {
  JobStops stops;
  EXPECT_EQ(stops.next_deadline(), Time::max());
  const JobId job = JobId::random(), later = JobId::random();
  const Time begin{1s};
  stops.begin(job, some_handle(), begin);
  stops.begin(later, some_handle(), begin + 3s);
  stops.begin(job, some_handle(), begin + 5s);
  const Time due = begin + JobStops::kGrace;
  EXPECT_EQ(stops.next_deadline(), due);
  EXPECT_TRUE(stops.take_late(due - 1ns).empty());
  EXPECT_EQ(stops.take_late(due).size(), 1u);
  EXPECT_TRUE(stops.take_late(due).empty()) << "once";
  EXPECT_EQ(stops.next_deadline(), due + 3s);
  EXPECT_EQ(stops.take_late(due + 3s).size(), 1u);
  EXPECT_EQ(stops.next_deadline(), Time::max());
}

TEST(JobStops, ADriverThatHasEndedItsSessionIsNotKilled) {
  JobStops stops;
  const JobId job = JobId::random();
  stops.begin(job, some_handle(), Time{1s});
  stops.forget(job);
  EXPECT_EQ(stops.next_deadline(), Time::max());
  EXPECT_TRUE(stops.take_late(Time::max()).empty());
}

TEST(JobStops, AMissingHandleIsFilledIn) {
  JobStops stops;
  const JobId job = JobId::random();
  stops.begin(job, Fd(), Time{1s});
  stops.begin(job, some_handle(), Time{2s});
  EXPECT_EQ(stops.take_late(Time{1s} + JobStops::kGrace).size(), 1u);
}

TEST(JobStops, ADriverWithoutAHandleIsLeftAlone) {
  JobStops stops;
  stops.begin(JobId::random(), Fd(), Time{1s});
  EXPECT_TRUE(stops.take_late(Time::max()).empty());
  EXPECT_EQ(stops.next_deadline(), Time::max());
}

}  // namespace
}  // namespace troupe::agent
