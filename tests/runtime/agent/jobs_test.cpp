// Tests Jobs: JOBS-1 to JOBS-4.
#include "troupe/runtime/agent/jobs.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <variant>
#include <vector>

namespace troupe::agent::jobs_test {
namespace {

using namespace std::chrono_literals;
constexpr NodeId kHere{0, 1};
constexpr ProcessIndex kDriver = 3;

struct JobsTest : testing::Test, ControlPort {
  void send(control::ToControl message) override { sent.push_back(std::move(message)); }
  /// Returns the messages of this kind, and forgets all.
  template <class Message>
  std::vector<Message> take() {
    std::vector<Message> taken;
    for (const control::ToControl& message : std::exchange(sent, {}))
      if (const auto* one = std::get_if<Message>(&message)) taken.push_back(*one);
    return taken;
  }
  Job& add_driver() {
    wire::Hello hello;
    hello.job_name = "train";
    return jobs.add(kDriver, hello, kHere, 5);
  }

  Jobs jobs{*this, {}};
  std::vector<control::ToControl> sent;
  Time now{1s};
};

TEST_F(JobsTest, JobKeepsItsNumberAndNoOtherEverGetsIt) {
  const JobId id = JobId::random(), other = JobId::random();
  const JobNumber number = jobs.of(id).number;
  EXPECT_EQ(jobs.of(id).number, number);
  EXPECT_NE(jobs.of(other).number, number);
  EXPECT_EQ(jobs.find(number), jobs.find(id));
  jobs.forget(jobs.all().find(number));
  EXPECT_EQ(jobs.find(number), nullptr);
  EXPECT_EQ(jobs.find(id), nullptr);
  EXPECT_NE(jobs.of(id).number, number);
}

TEST_F(JobsTest, WorkersStartWhenTheProgramIsHere) {
  Job& job = jobs.of(JobId::random());
  EXPECT_FALSE(jobs.wants_worker(job, true));
  EXPECT_FALSE(jobs.wants_worker(job, false));
  ASSERT_EQ(take<control::GetJob>().size(), 1u) << "control is asked once";
  control::JobInfo info;
  info.request = job.number.value;
  EXPECT_EQ(jobs.asked_for(info), &job);
  EXPECT_EQ(jobs.ready(job), (std::vector<bool>{true, false}));
  EXPECT_TRUE(jobs.ready(job).empty());
  EXPECT_TRUE(jobs.wants_worker(job, false));
  EXPECT_EQ(jobs.asked_for(info), nullptr);
}

TEST_F(JobsTest, WaitingStartsFailWhenThereIsNoProgram) {
  Job& job = jobs.of(JobId::random());
  jobs.wants_worker(job, false);
  EXPECT_EQ(jobs.failed(job, "no such file"), std::vector<bool>{false});
  EXPECT_EQ(job.state, Job::State::failed);
  EXPECT_EQ(job.why, "no such file");
}

TEST_F(JobsTest, EmbeddedNodeHasTheProgramOfEachJob) {
  Jobs embedded(*this, {.is_private = false, .is_embedded = true});
  EXPECT_TRUE(embedded.wants_worker(embedded.of(JobId::random()), false));
  EXPECT_TRUE(sent.empty());
}

TEST_F(JobsTest, EachNewControlIsToldOfDriversAndTheirEnds) {
  Job& job = add_driver();
  jobs.registered(1);
  EXPECT_TRUE(sent.empty()) << "its record is not complete";
  jobs.start(job, 0);
  EXPECT_TRUE(sent.empty()) << "the node is not registered";
  jobs.registered(1);
  jobs.registered(2);
  const auto started = take<control::StartJob>();
  ASSERT_EQ(started.size(), 2u);
  EXPECT_EQ(started[1].job.epoch, Epoch{2});
  EXPECT_EQ(started[1].job.name, "train");
  jobs.driver_ended(job, false, "killed", now);
  jobs.registered(3);
  const auto died = take<control::DriverDied>();
  EXPECT_EQ(died.size(), 2u);
}

TEST_F(JobsTest, JobThatAPersonStopsEndsAsStoppedHoweverItsDriverEnds) {
  for (const bool finished : {true, false}) {
    Job& job = add_driver();
    const auto driver = jobs.stop(job.id, "alice");
    ASSERT_TRUE(driver);
    EXPECT_EQ(*driver, kDriver);
    EXPECT_TRUE(jobs.stop(job.id, "bob")) << "and changes nothing";
    jobs.driver_ended(job, finished, "killed by signal 9", now);
    EXPECT_FALSE(jobs.stop(job.id, "bob"));
    jobs.registered(2);
    const auto ends = take<control::FinishJob>();
    ASSERT_EQ(ends.size(), finished ? 2u : 3u) << "and again to a new control";
    for (const auto& end : ends)
      EXPECT_EQ(end.stopped_why, "stopped by alice with troupe job stop");
  }
  const auto unknown = jobs.stop(JobId::random(), "alice");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code(), Code::invalid_argument);
}

TEST_F(JobsTest, LastSixtyFourEndsAreSaidAgain) {
  for (int i = 0; i < 70; ++i) jobs.driver_ended(add_driver(), true, "", now);
  take<control::FinishJob>();
  jobs.registered(2);
  EXPECT_EQ(take<control::FinishJob>().size(), 64u);
}

TEST_F(JobsTest, ReplyOfControlGoesToTheDriverOfItsJob) {
  control::JobReply reply;
  reply.request = add_driver().number.value;
  EXPECT_EQ(jobs.driver_of(reply), kDriver);
  reply.error = Error(Code::unavailable, "it restarts").shared_info();
  EXPECT_EQ(jobs.driver_of(reply), ProcessIndex{}) << "the job is started again";
  reply.error = Error(Code::invalid_argument, "no").shared_info();
  EXPECT_EQ(jobs.driver_of(reply), kDriver);
}

TEST_F(JobsTest, JobIsLateWhenControlSaysNothingAfterItsDriversEnd) {
  Job& job = add_driver();
  EXPECT_EQ(jobs.next_deadline(), Time::max());
  jobs.driver_ended(job, true, "", now);
  const Time due = jobs.next_deadline();
  EXPECT_LT(due, now + 5min);
  EXPECT_TRUE(jobs.late(due - 1ns).empty());
  EXPECT_EQ(jobs.late(due), std::vector<JobId>{job.id});
  jobs.end(job);
  EXPECT_TRUE(jobs.late(due).empty());
}

TEST_F(JobsTest, StartsForActorsOutliveTheJobAndThoseForTasksDoNot) {
  Job& job = jobs.of(JobId::random());
  EXPECT_FALSE(Jobs::is_over(job, true));
  EXPECT_TRUE(Jobs::is_over(job, false)) << "only a lease request has named it";
  for (const bool dedicated : {false, true, false}) jobs.wants_worker(job, dedicated);
  EXPECT_FALSE(Jobs::is_over(job, false));
  EXPECT_EQ(jobs.end(job), 2u);
  EXPECT_EQ(job.waiting, std::vector<bool>{true});
  EXPECT_TRUE(Jobs::is_over(job, true));
}

}  // namespace
}  // namespace troupe::agent::jobs_test
