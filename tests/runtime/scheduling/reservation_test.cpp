/// Tests a large request among small ones: it runs once its resources can gather, and seldom idles
/// the node before.
#include "tests/runtime/scheduling/views.hpp"
#include "troupe/runtime/scheduling/lease_table.hpp"

#include <gtest/gtest.h>
#include <map>

namespace troupe::scheduling {
namespace {

using namespace std::chrono_literals;

constexpr Duration kStep = 10ms;

/// A node whose tasks have fixed run times, by owner. All requests are of key 1.
struct Node {
  explicit Node(double cpus)
      : table({.total = {.cpus = amount_of(cpus), .memory = 1ll << 30}, .max_workers = 8},
              node_id(1)) {}
  void submit(OwnerId owner, double cpus, std::uint32_t count = 1) {
    table.request_more(owner, 1, demand(cpus), count, now);
    settle();
  }
  void step() {
    now += kStep;
    for (auto at = running.begin(); at != running.end();) {
      if (at->second.second > now) {
        ++at;
        continue;
      }
      const LeaseId lease = at->first;
      at = running.erase(at);
      table.returned(lease, now);
    }
    if (const auto due = table.next_deadline(); due && *due <= now) table.on_timer(now);
    settle();
  }
  void settle() {
    for (auto events = table.take_events(); !events.empty(); events = table.take_events())
      for (const LeaseEvent& event : events) {
        if (const auto* start = std::get_if<StartWorker>(&event))
          table.worker_started(++last_worker, now, start->dedicated, start->job);
        if (const auto* grant = std::get_if<Granted>(&event)) {
          running[grant->lease] = {grant->owner, now + times.at(grant->owner)};
          ++granted[grant->owner];
        }
      }
  }

  Time now{};
  LeaseTable table;
  std::map<OwnerId, Duration> times;
  std::map<OwnerId, int> granted;
  std::map<LeaseId, std::pair<OwnerId, Time>> running;
  WorkerId last_worker;
};

constexpr OwnerId kLong = 1, kLarge = 2, kSmall = 3, kSmallToo = 4;

/// Small tasks come one by one beside a long one for which a large one waits. Returns how long
/// they stood still while the long one ran.
Duration stands_still(OwnerId large) {
  Node node(3);
  node.times = {{kLong, 30s}, {kLarge, 1s}, {kSmall, 50ms}};
  node.submit(kLong, 2);
  node.submit(large, 2);
  Duration still{};
  while (node.now < Time{} + 30s - kStep) {
    if (node.table.wanted(kSmall, 1) == 0 && node.running.size() == 1) node.submit(kSmall, 1);
    if (node.running.size() == 1) still += kStep;
    node.step();
  }
  EXPECT_GT(node.granted[kSmall], 400);
  for (int i = 0; i < 10; ++i) node.step();
  EXPECT_EQ(node.granted[large], large == kLong ? 2 : 1) << "it runs after the long one";
  return still;
}

TEST(Reservations, SmallTasksGoOnBesideALongTaskForWhichALargeOneWaits) {
  EXPECT_LE(stands_still(kLong), 1s) << "the large one is of the same kind";
  EXPECT_LE(stands_still(kLarge), 1s) << "the large one is another owner's";
}

/// Two owners' tasks of this length end at different times. Returns when the large task runs.
Duration large_runs_after(Duration length) {
  Node node(2);
  node.times = {{kSmall, length}, {kSmallToo, length}, {kLarge, 1s}};
  node.submit(kSmall, 1, 100'000);
  while (node.now < Time{} + length / 2) node.step();
  node.submit(kLarge, 2);
  node.submit(kSmallToo, 1, 100'000);
  const Time begun = node.now;
  while (node.granted[kLarge] == 0 && node.now < begun + 100 * length + 10s) node.step();
  return node.now - begun;
}

TEST(Reservations, ALargeTaskRunsSoonAmongTasksThatAreKnownToBeShort) {
  for (const Duration length : {100ms, 500ms, 1500ms})
    EXPECT_LE(large_runs_after(length), 2s + 2 * length) << length.count();
}

TEST(Reservations, ALargeTaskDoesNotStarveAmongLongTasks) {
  for (const Duration length : {3s, 5s, 20s})
    EXPECT_LE(large_runs_after(length), 2s + 50 * length) << length.count();
}

TEST(Reservations, AHoldInVainIsFollowedByAPauseNineTimesAsLong) {
  Reservation reservation;
  const RequestKey one{OwnerId(1), LeaseKey(1)}, other{OwnerId(2), LeaseKey(1)};
  Time now{1s};
  ASSERT_TRUE(reservation.may_hold(one, now));
  reservation.hold(one, 100ms, now);
  EXPECT_FALSE(reservation.may_hold(other, now));
  now += 99ms;
  EXPECT_TRUE(reservation.may_hold(one, now));
  now += 1ms;
  EXPECT_FALSE(reservation.may_hold(one, now));
  EXPECT_FALSE(reservation.may_hold(other, now));
  now += 900ms;
  EXPECT_TRUE(reservation.may_hold(other, now));
  reservation.hold(other, 100ms, now);
  reservation.met(other, now);
  EXPECT_TRUE(reservation.may_hold(one, now)) << "the hold was not in vain";
}

TEST(Reservations, ALongTimeCountsAtOnceAndIsForgottenSlowly) {
  RunTimes times;
  const RequestKey key{OwnerId(1), LeaseKey(1)};
  EXPECT_FALSE(times.find(key));
  times.add(key, 100ms);
  times.add(key, 4s);
  EXPECT_EQ(times.find(key), Duration(4s));
  times.add(key, 100ms);
  EXPECT_EQ(times.find(key), Duration(3s));
  times.forget(1);
  EXPECT_FALSE(times.find(key));
}

}  // namespace
}  // namespace troupe::scheduling
