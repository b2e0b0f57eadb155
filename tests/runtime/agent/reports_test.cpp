// Tests when a node reports its free resources to control. Other nodes place work by these
// reports.
#include "troupe/runtime/agent/reports.hpp"

#include <gtest/gtest.h>

namespace troupe::agent {
namespace {

using namespace std::chrono_literals;

struct Node {
  Reports reports;
  control::NodeReport report;
  std::uint64_t spilled_here = 0;
  Time now{1s};

  /// Runs from timer to timer for `span`; returns how often the node has reported.
  int tell_for(Duration span) {
    int told = 0;
    for (const Time end = now + span; now <= end;) {
      told += reports.due(now) && reports.is_news(report, spilled_here, now) ? 1 : 0;
      const Time next = reports.next_deadline();
      if (next > end) break;
      now = next;
    }
    return told;
  }
};

TEST(Reports, AChangeIsToldOnceAndManyAtMostTenTimesASecond) {
  Node node;
  EXPECT_EQ(node.tell_for(10s), 1);
  node.now += 10s;
  EXPECT_EQ(node.tell_for(0s), 0);
  int told = 0;
  for (int i = 0; i < 1000; ++i) {
    node.report.view.free.cpus = i;
    told += node.tell_for(0s);
    node.now += 1ms;
  }
  told += node.tell_for(1s);
  EXPECT_EQ(told, 11);
}

TEST(Reports, WhoeverSentARequestHearsOfTheNodeAlsoWhenNothingSeemsToHaveChanged) {
  Node node;
  node.report.view.free.cpus = 1;
  EXPECT_EQ(node.tell_for(0s), 1);
  node.now += 10ms;  // a lease is granted and returned before the next report
  ++node.spilled_here;
  node.report.view.free.cpus = 0;
  EXPECT_EQ(node.tell_for(0s), 0);
  node.now += 50ms;
  node.report.view.free.cpus = 1;
  EXPECT_EQ(node.tell_for(1s), 1);
}

TEST(Reports, AnotherControlIsToldEverything) {
  Node node;
  EXPECT_EQ(node.tell_for(1s), 1);
  node.now += 1s;
  node.reports.forget();
  EXPECT_EQ(node.tell_for(1s), 1);
}

}  // namespace
}  // namespace troupe::agent
