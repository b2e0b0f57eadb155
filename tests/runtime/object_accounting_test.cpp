// Who made the objects of a node: bytes of jobs, objects of call sites, and which sites grow.
#include "troupe/runtime/agent/object_accounting.hpp"
#include "troupe/runtime/agent/quota_wait.hpp"

#include <gtest/gtest.h>

namespace troupe::agent::object_accounting_test {
namespace {

using namespace std::chrono_literals;
constexpr Time kNow{100s};

ObjectAccounting::Site seen(ObjectAccounting& books, std::uint32_t number, Time now) {
  ObjectAccounting::Site found;
  books.each_site(now, [&](std::uint32_t one, const ObjectAccounting::Site& site) {
    if (one == number) found = site;
  });
  return found;
}

TEST(ObjectAccounting, AJobHasWhatItMadeUntilItIsFreed) {
  ObjectAccounting books;
  const std::uint32_t here = books.site("main.cpp:12");
  EXPECT_EQ(books.site("main.cpp:12"), here);
  EXPECT_EQ(books.site(""), 0u);
  books.made(1, here, 100, kNow);
  books.made(1, 0, 10, kNow);
  books.made(2, here, 5, kNow);
  EXPECT_EQ(books.bytes_of(1), 110u);
  EXPECT_EQ(books.bytes_of(3), 0u);
  const ObjectAccounting::Site site = seen(books, here, kNow);
  EXPECT_EQ(site.text, "main.cpp:12");
  EXPECT_EQ(site.objects, 2u);
  EXPECT_EQ(site.bytes, 105u);
  books.freed(1, here, 100);
  books.freed(1, 0, 10);
  EXPECT_EQ(books.bytes_of(1), 0u);
  int jobs = 0;
  books.each_job([&](std::uint64_t job, std::uint64_t bytes) {
    ++jobs;
    EXPECT_EQ(job, 2u);
    EXPECT_EQ(bytes, 5u);
  });
  EXPECT_EQ(jobs, 1);
  EXPECT_EQ(seen(books, here, kNow).made, 2u);
}

TEST(ObjectAccounting, ObjectsWithoutBytesComeAndGoInAnyOrder) {
  ObjectAccounting books;
  books.made(1, 0, 0, kNow);
  EXPECT_EQ(books.bytes_of(1), 0u);
  books.made(1, 0, 100, kNow);
  books.freed(1, 0, 100);
  books.freed(1, 0, 0);
  EXPECT_EQ(books.bytes_of(1), 0u);
}

TEST(ObjectAccounting, WhatIsNeverFreedGrowsAndWhatComesAndGoesDoesNot) {
  ObjectAccounting books(10s);
  const std::uint32_t leak = books.site("leak"), busy = books.site("busy"),
                      kept = books.site("kept");
  books.made(1, kept, 1, kNow);
  Time now = kNow;
  for (int span = 0; span < 6; ++span)
    for (int i = 0; i < 5; ++i, now += 2s) {
      books.made(1, leak, 1, now);
      books.made(1, busy, 1, now);
      if (i == 4)
        for (int n = 0; n < 5; ++n) books.freed(1, busy, 1);
    }
  books.made(1, busy, 1, now);
  EXPECT_TRUE(seen(books, leak, now).grows);
  EXPECT_FALSE(seen(books, busy, now).grows);
  EXPECT_FALSE(seen(books, kept, now).grows);
  EXPECT_FALSE(seen(books, leak, now + 60s).grows) << "nothing was added since";
}

TEST(ObjectAccounting, TooManySitesAreUnknown) {
  ObjectAccounting books;
  for (std::size_t i = 1; i < ObjectAccounting::kMostSites; ++i)
    EXPECT_NE(books.site("f" + std::to_string(i)), 0u);
  EXPECT_EQ(books.site("one more"), 0u);
  EXPECT_NE(books.site("f1"), 0u);
}

// --- who waits at its quota

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
