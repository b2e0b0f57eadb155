// Tests the accounting of a node's objects: bytes of jobs, objects of call sites, and which call
// sites grow.
#include "troupe/runtime/agent/object_accounting.hpp"
#include "troupe/runtime/agent/quota_wait.hpp"

#include <gtest/gtest.h>

namespace troupe::agent::object_accounting_test {
namespace {

using namespace std::chrono_literals;
constexpr Time kNow{100s};

ObjectAccounting::Site seen(ObjectAccounting& accounting, std::uint32_t number, Time now) {
  ObjectAccounting::Site found;
  accounting.each_site(now, [&](std::uint32_t one, const ObjectAccounting::Site& site) {
    if (one == number) found = site;
  });
  return found;
}

TEST(ObjectAccounting, AJobHasWhatItMadeUntilItIsFreed) {
  ObjectAccounting accounting;
  const std::uint32_t here = accounting.site("main.cpp:12");
  EXPECT_EQ(accounting.site("main.cpp:12"), here);
  EXPECT_EQ(accounting.site(""), 0u);
  accounting.made(1, here, 100, kNow);
  accounting.made(1, 0, 10, kNow);
  accounting.made(2, here, 5, kNow);
  EXPECT_EQ(accounting.bytes_of(1), 110u);
  EXPECT_EQ(accounting.bytes_of(3), 0u);
  const ObjectAccounting::Site site = seen(accounting, here, kNow);
  EXPECT_EQ(site.text, "main.cpp:12");
  EXPECT_EQ(site.objects, 2u);
  EXPECT_EQ(site.bytes, 105u);
  accounting.freed(1, here, 100, kNow);
  accounting.freed(1, 0, 10, kNow);
  EXPECT_EQ(accounting.bytes_of(1), 0u);
  int jobs = 0;
  accounting.each_job([&](JobNumber job, std::uint64_t bytes) {
    ++jobs;
    EXPECT_EQ(job, JobNumber{2});
    EXPECT_EQ(bytes, 5u);
  });
  EXPECT_EQ(jobs, 1);
  EXPECT_EQ(seen(accounting, here, kNow).made, 2u);
}

TEST(ObjectAccounting, ObjectsWithoutBytesComeAndGoInAnyOrder) {
  ObjectAccounting accounting;
  accounting.made(1, 0, 0, kNow);
  EXPECT_EQ(accounting.bytes_of(1), 0u);
  accounting.made(1, 0, 100, kNow);
  accounting.freed(1, 0, 100, kNow);
  accounting.freed(1, 0, 0, kNow);
  EXPECT_EQ(accounting.bytes_of(1), 0u);
}

TEST(ObjectAccounting, WhatIsNeverFreedGrowsAndWhatComesAndGoesDoesNot) {
  ObjectAccounting accounting(10s);
  const std::uint32_t leak = accounting.site("leak"), busy = accounting.site("busy"),
                      kept = accounting.site("kept");
  accounting.made(1, kept, 1, kNow);
  Time now = kNow;
  for (int span = 0; span < 6; ++span)
    for (int i = 0; i < 5; ++i, now += 2s) {
      accounting.made(1, leak, 1, now);
      accounting.made(1, busy, 1, now);
      if (i == 4)
        for (int n = 0; n < 5; ++n) accounting.freed(1, busy, 1, now);
    }
  accounting.made(1, busy, 1, now);
  EXPECT_TRUE(seen(accounting, leak, now).grows);
  EXPECT_FALSE(seen(accounting, busy, now).grows);
  EXPECT_FALSE(seen(accounting, kept, now).grows);
  EXPECT_FALSE(seen(accounting, leak, now + 60s).grows) << "nothing was added since";
}

TEST(ObjectAccounting, AFreeCountsInItsOwnSpan) {
  ObjectAccounting accounting(10s);
  const std::uint32_t site = accounting.site("site");
  Time now = kNow;
  const auto next_span = [&](int objects) {
    for (int i = 0; i < objects; ++i) accounting.made(1, site, 1, now);
    now += 10s;
  };
  next_span(1);
  next_span(1);
  next_span(1);
  next_span(10);
  next_span(1);  // the least numbers of the spans are 0, 1, 2, 3 and 13
  for (int i = 0; i < 9; ++i) accounting.freed(1, site, 1, now);
  EXPECT_FALSE(seen(accounting, site, now).grows) << "5 objects are fewer than 13";
}

TEST(ObjectAccounting, TooManySitesAreUnknown) {
  ObjectAccounting accounting;
  for (std::size_t i = 1; i < ObjectAccounting::kMostSites; ++i)
    EXPECT_NE(accounting.site("f" + std::to_string(i)), 0u);
  EXPECT_EQ(accounting.site("one more"), 0u);
  EXPECT_NE(accounting.site("f1"), 0u);
}

// --- waiting at the quota

TEST(QuotaWait, WaitsAsLongAsSomethingOfTheJobIsFreed) {
  using Next = QuotaWait::Next;
  QuotaWait wait;
  const Time begin{std::chrono::seconds(100)};
  Time now = begin;
  std::uint64_t freed = 0;
  for (; now < begin + std::chrono::seconds(60); now += std::chrono::seconds(1))
    EXPECT_NE(wait.asked(freed += 10, std::chrono::seconds(8), now), Next::refuse);
  const Time last = now;
  Next next = Next::wait;
  for (; (next = wait.asked(freed, std::chrono::seconds(8), now)) != Next::refuse;)
    now += std::chrono::seconds(1);
  EXPECT_EQ(now - last, std::chrono::seconds(7)) << "8 s after the last progress";
  EXPECT_NE(wait.asked(freed, std::chrono::seconds(8), now), Next::refuse) << "another ask";
}

TEST(QuotaWait, IsPressedAgainAndAgain) {
  using Next = QuotaWait::Next;
  QuotaWait wait;
  Time now{std::chrono::seconds(100)};
  int pressure = 0;
  for (int i = 0; i < 40; ++i, now += std::chrono::milliseconds(50))
    pressure += wait.asked(7, std::chrono::seconds(8), now) == Next::pressure ? 1 : 0;
  EXPECT_EQ(pressure, 4) << "in two seconds";
  wait.over();
  EXPECT_EQ(wait.asked(7, std::chrono::seconds(8), now), Next::pressure) << "a new wait";
}

}  // namespace
}  // namespace troupe::agent::object_accounting_test
