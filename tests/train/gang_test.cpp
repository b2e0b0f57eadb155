// Tests how the ends of a gang's ranks are judged, and how their reports are combined.
#include "troupe/train/internal/gang_verdict.hpp"
#include "troupe/train/internal/reports.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace troupe::train::internal {
namespace {

using End = GangVerdict::End;

Error own(const std::string& text) {
  ErrorInfo info;
  info.code = Code::task_failed;
  info.message = text;
  info.type = "St13runtime_error";
  return Error(std::move(info));
}
Error of(Code code) {
  return Error(code, "because", Outcome::unknown);
}
bool says(const Error& error, const std::string& part) {
  return error.message().find(part) != std::string::npos;
}

TEST(GangVerdict, AllReturned) {
  GangVerdict verdict(2);
  verdict.returned(1, 10);
  EXPECT_EQ(verdict.end(), End::open);
  verdict.returned(0, 10);
  EXPECT_EQ(verdict.end(), End::done);
}

TEST(GangVerdict, WhatALoopThrewEndsTheRunWhateverElseWasHeardBefore) {
  GangVerdict verdict(3);
  verdict.failed(0, {5, of(Code::cancelled), true, 1});
  EXPECT_EQ(verdict.end(), End::open);
  verdict.died(2, 5, of(Code::actor_died));
  EXPECT_EQ(verdict.end(), End::open) << "rank 1 has not been heard of";
  verdict.failed(1, {4, own("a bug"), false, -1});
  EXPECT_EQ(verdict.end(), End::error);
  EXPECT_EQ(verdict.error().code(), Code::task_failed);
  EXPECT_TRUE(says(verdict.error(), "worker 1 threw at step 4: a bug")) << verdict.error().what();
}

TEST(GangVerdict, CallsThatDifferAreTheUsersError) {
  GangVerdict verdict(2);
  verdict.failed(0, {3, of(Code::invalid_argument), false, -1});
  EXPECT_EQ(verdict.end(), End::error);
  ASSERT_NE(verdict.error().cause(), nullptr);
  EXPECT_EQ(verdict.error().cause()->code(), Code::invalid_argument);
}

TEST(GangVerdict, ARankThatLeftIsNamedWhenBothWereHeard) {
  for (const bool first : {true, false}) {
    GangVerdict verdict(3);
    if (first) verdict.returned(1, 10);
    verdict.failed(0, {11, of(Code::cancelled), true, 1});
    EXPECT_EQ(verdict.end(), first ? End::error : End::open);
    if (!first) verdict.returned(1, 10);
    EXPECT_EQ(verdict.end(), End::error);
    EXPECT_TRUE(says(verdict.error(), "worker 1 returned from the loop at step 10"));
    EXPECT_TRUE(says(verdict.error(), "worker 0 waits"));
  }
}

TEST(GangVerdict, ARankThatHadDoneAllIsNotBlamed) {
  GangVerdict verdict(3);
  verdict.returned(2, 20);
  verdict.died(0, 20, of(Code::actor_died));
  verdict.failed(1, {20, of(Code::worker_died), true, -1});
  EXPECT_EQ(verdict.end(), End::restart);
  EXPECT_TRUE(says(verdict.error(), "worker 0 at step 20 died"));
}

TEST(GangVerdict, EveryCodeIsTheUsersOrTheClusters) {
  for (const Code code : {Code::actor_died, Code::actor_unavailable, Code::object_lost,
                          Code::timed_out, Code::overloaded, Code::unavailable, Code::out_of_memory,
                          Code::out_of_disk, Code::no_space, Code::worker_died}) {
    GangVerdict verdict(1);
    verdict.failed(0, {1, of(code), false, -1});
    EXPECT_EQ(verdict.end(), End::restart) << name_of(code);
    EXPECT_EQ(verdict.error().cause()->code(), code);
  }
  for (const Code code : {Code::internal, Code::task_failed, Code::cancelled,
                          Code::invalid_argument, Code::infeasible, Code::poison_task}) {
    GangVerdict verdict(1);
    verdict.failed(0, {1, of(code), false, -1});
    EXPECT_EQ(verdict.end(), End::error) << name_of(code);
  }
}

TEST(GangVerdict, AnActorThatWasNeverMade) {
  ErrorInfo info;
  info.code = Code::actor_died;
  info.cause = own("its argument is odd").shared_info();
  GangVerdict thrown(2);
  thrown.died(0, 0, Error(info));
  EXPECT_EQ(thrown.end(), End::error);
  EXPECT_EQ(thrown.error().code(), Code::task_failed);
  GangVerdict placed(2);
  placed.died(0, 0, of(Code::infeasible));
  EXPECT_EQ(placed.end(), End::error);
  EXPECT_EQ(placed.error().code(), Code::infeasible);
}

TEST(GangVerdict, WhoSaysNothingIsNotWaitedForForEver) {
  GangVerdict verdict(2);
  verdict.failed(0, {5, of(Code::timed_out), true, -1});
  EXPECT_EQ(verdict.end(), End::open);
  verdict.stop_waiting();
  EXPECT_EQ(verdict.end(), End::restart);
  EXPECT_TRUE(says(verdict.error(), "worker 0 at step 5 lost the others"));
}

TEST(GangVerdict, ARankThatHasNoLinkIsTheCauseAndNotTheEndThatOthersSee) {
  GangVerdict verdict(2);
  verdict.failed(0, {1, of(Code::worker_died), true, 1});
  verdict.failed(1, {1, of(Code::unavailable), true, -1});
  EXPECT_EQ(verdict.end(), End::restart);
  EXPECT_TRUE(says(verdict.error(), "worker 1 at step 1 lost the others"));
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(Reports, TheMeanOfAllRanksCounts) {
  Reports reports(3, "loss", MetricReduce::mean);
  reports.reported(0, {1, 1}, {.step = 1, .loss = 1, .extra = {{"rank", 0}}});
  reports.reported(1, {1, 1}, {.step = 1, .loss = 2, .extra = {}});
  EXPECT_FALSE(reports.next());
  reports.reported(2, {1, 1}, {.step = 1, .loss = 6, .extra = {}});
  const auto complete = reports.next();
  ASSERT_TRUE(complete);
  EXPECT_EQ(complete->metrics.loss, 3);
  EXPECT_EQ(complete->value, 3);
  EXPECT_EQ(complete->metrics.extra.at("rank"), 0);
  EXPECT_FALSE(reports.next());
}

TEST(Reports, ARankThatDoesNotReportCostsNoWait) {
  Reports reports(3, "loss", MetricReduce::mean);
  reports.reported(0, {1, 4}, {.step = 1, .loss = 5, .extra = {}});
  reports.passed(1, {1, 4});
  reports.over(2);
  EXPECT_FALSE(reports.next()) << "rank 1 may still report";
  EXPECT_TRUE(reports.awaits(1));
  reports.passed(1, {1, 5});
  ASSERT_TRUE(reports.next());
  EXPECT_FALSE(reports.awaits(1));
}

TEST(Reports, RanksMayBeFarApart) {
  Reports reports(2, "loss", MetricReduce::mean);
  for (long step = 1; step <= 100; ++step)
    reports.reported(1, {step, 0}, {.step = step, .loss = 3, .extra = {}});
  for (long step = 10; step <= 100; step += 10) {
    reports.reported(0, {step, 0}, {.step = step, .loss = 1, .extra = {}});
    const auto complete = reports.next();
    ASSERT_TRUE(complete) << step;
    EXPECT_EQ(complete->metrics.step, step);
    EXPECT_EQ(complete->metrics.loss, 2);
  }
}

TEST(Reports, TheNamedMetricComesFromWhoHasIt) {
  Reports reports(2, "accuracy", MetricReduce::max);
  reports.reported(0, {1, 0}, {.step = 1, .loss = 1, .extra = {}});
  reports.reported(1, {1, 0}, {.step = 1, .loss = 2, .extra = {{"accuracy", 0.5}}});
  auto complete = reports.next();
  ASSERT_TRUE(complete);
  EXPECT_EQ(complete->value, 0.5);
  EXPECT_EQ(complete->metrics.extra.at("accuracy"), 0.5);
  EXPECT_EQ(complete->metrics.loss, 1.5);
  reports.reported(0, {2, 0}, {.step = 2, .loss = 1, .extra = {}});
  reports.over(1);
  complete = reports.next();
  ASSERT_TRUE(complete);
  EXPECT_FALSE(complete->value);
}

TEST(Reports, Reductions) {
  for (int n = 1; n <= 7; ++n)
    EXPECT_EQ(reduced(std::vector<double>(static_cast<std::size_t>(n), 0.1), MetricReduce::mean),
              0.1);
  EXPECT_EQ(reduced({1, 2, 6}, MetricReduce::mean), 3);
  EXPECT_EQ(reduced({1, 2, 6}, MetricReduce::sum), 9);
  EXPECT_EQ(reduced({1, 2, 6}, MetricReduce::min), 1);
  EXPECT_EQ(reduced({1, 2, 6}, MetricReduce::max), 6);
  for (const MetricReduce how :
       {MetricReduce::mean, MetricReduce::sum, MetricReduce::min, MetricReduce::max})
    EXPECT_TRUE(std::isnan(reduced({1, kNaN, 2}, how)));
  const double big = std::numeric_limits<double>::infinity();
  EXPECT_EQ(reduced({1, big}, MetricReduce::mean), big);
}

}  // namespace
}  // namespace troupe::train::internal
