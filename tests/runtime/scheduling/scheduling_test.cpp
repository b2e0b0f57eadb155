// Tests leases: the amounts always add up, blocked chains finish, no request starves, and dead
// processes give everything back.
#include "tests/runtime/scheduling/lease_tables.hpp"
#include "troupe/runtime/base/buggify.hpp"
#include "troupe/runtime/base/random.hpp"

#include <gtest/gtest.h>
#include <algorithm>
#include <ctime>
#include <limits>

namespace troupe::scheduling {
namespace {

using namespace std::chrono_literals;

using namespace lease_tables;

TEST(Leases, GrantsWhatFitsAndReusesWorkers) {
  Table table(options(2, 2));
  table.request(10, 1, demand(1), 3, table.now);
  auto grants = pick<Granted>(table.settle());
  ASSERT_EQ(grants.size(), 2u);
  EXPECT_EQ(table.explain(10, 1),
            "waits for 1 CPU: of the 1 node(s) that have it, none has more than 0 free");
  EXPECT_EQ(table.holder_of(grants[0].lease), OwnerId{10});
  table.returned(grants[0].lease, table.now);
  EXPECT_FALSE(table.holder_of(grants[0].lease));
  const auto next = pick<Granted>(table.settle());
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].worker, grants[0].worker);
  EXPECT_EQ(table.worker_count(), 2u);
  EXPECT_EQ(table.waiting(), 0u);
}

TEST(Leases, ANewRequestReplacesTheOldAndZeroWithdraws) {
  Table table(options(1, 4));
  table.request(10, 1, demand(1), 50, table.now);
  EXPECT_EQ(pick<Granted>(table.settle()).size(), 1u);
  EXPECT_EQ(table.waiting(), 49u);
  table.request(10, 1, demand(1), 2, table.now);
  EXPECT_EQ(table.waiting(), 2u);
  table.request(10, 1, demand(1), 0, table.now);
  EXPECT_EQ(table.waiting(), 0u);
}

TEST(Leases, AChainThreeDeepOnOneCpuFinishes) {
  Table table(options(1, 1));
  std::vector<Granted> chain;
  for (int depth = 0; depth < 3; ++depth) {
    // The caller (the driver, then each worker) requests a lease for the next level and blocks on
    // it.
    table.request(OwnerId::of(100 + static_cast<std::uint64_t>(depth)), 1, demand(1), 1, table.now);
    for (int i = 0; i < 5 && chain.size() <= static_cast<std::size_t>(depth); ++i) {
      const auto grants = pick<Granted>(table.settle());
      chain.insert(chain.end(), grants.begin(), grants.end());
      if (chain.size() > static_cast<std::size_t>(depth)) break;
      ASSERT_TRUE(table.next_deadline().has_value()) << "nobody will ever come back";
      table.now = *table.next_deadline();
      table.on_timer(table.now);
    }
    ASSERT_EQ(chain.size(), static_cast<std::size_t>(depth) + 1);
    if (depth < 2) table.blocked(chain.back().worker, table.now);
  }
  for (int depth = 2; depth >= 0; --depth) {
    table.returned(chain[static_cast<std::size_t>(depth)].lease, table.now);
    if (depth > 0) table.unblocked(chain[static_cast<std::size_t>(depth) - 1].worker, table.now);
    table.settle();
  }
  EXPECT_EQ(table.lease_count(), 0u);
  EXPECT_EQ(table.self_view().free, table.self_view().total);
}

TEST(Leases, AnUnblockedTaskResumesAtOnceAndNothingIsGrantedUntilBalanced) {
  Table table(options(1, 2));
  table.request(1, 1, demand(1), 1, table.now);
  const auto first = pick<Granted>(table.settle())[0];
  table.blocked(first.worker, table.now);
  table.request(2, 1, demand(1), 1, table.now);
  const auto second = pick<Granted>(table.settle())[0];
  table.unblocked(first.worker, table.now);  // two workers run on one CPU: a debt of one
  EXPECT_EQ(table.self_view().free.cpus, 0);
  table.request(3, 1, demand(0), 1, table.now);  // needs nothing, so it would fit
  EXPECT_TRUE(pick<Granted>(table.settle()).empty());
  EXPECT_NE(table.explain(3, 1).find("tasks that were blocked run again and come first"),
            std::string::npos);
  table.returned(second.lease, table.now);  // the debt is paid
  EXPECT_EQ(pick<Granted>(table.settle()).size(), 1u);
  EXPECT_EQ(table.self_view().free.cpus, 0);
  table.returned(first.lease, table.now);
  EXPECT_EQ(table.self_view().free.cpus, kUnit);
}

TEST(Leases, ExtraWorkersForBlockedChainsStartAtALimitedRateNeverZero) {
  Table table(options(1, 1));
  std::vector<Time> starts;
  for (OwnerId owner = 1; owner <= 6; ++owner) {
    table.request(owner, 1, demand(1), 1, table.now);
    auto grants = pick<Granted>(table.settle());
    while (grants.empty()) {
      ASSERT_TRUE(table.next_deadline().has_value());
      table.now = *table.next_deadline();
      table.on_timer(table.now);
      grants = pick<Granted>(table.settle());
    }
    starts.push_back(table.now);
    table.blocked(grants[0].worker, table.now);
  }
  EXPECT_EQ(starts[1], starts[0]);  // the first extra worker starts at once
  for (std::size_t i = 2; i < starts.size(); ++i) EXPECT_EQ(starts[i] - starts[i - 1], 100ms);
}

TEST(Leases, IdleLeasesAreReclaimedWhenOthersWait) {
  Table table(options(1, 1));
  table.request(1, 1, demand(1), 1, table.now);
  const auto held = pick<Granted>(table.settle())[0];
  table.now += 1s;
  table.request(2, 1, demand(1), 1, table.now);
  const auto reclaims = pick<ReclaimLease>(table.settle());
  ASSERT_EQ(reclaims.size(), 1u);
  EXPECT_EQ(reclaims[0].owner, OwnerId{1});
  EXPECT_EQ(reclaims[0].lease, held.lease);
  table.on_timer(table.now);
  EXPECT_TRUE(pick<ReclaimLease>(table.settle()).empty());  // the lease is reclaimed once only
  table.returned(held.lease, table.now);
  EXPECT_EQ(pick<Granted>(table.settle())[0].owner, OwnerId{2});
}

TEST(Leases, WhatASilentOwnerDoesNotUseGoesToOthers) {
  Table table(options(2, 2));
  table.request(1, 1, demand(1), 2, table.now);
  const auto held = pick<Granted>(table.settle());
  ASSERT_EQ(held.size(), 2u);
  table.now += 1s;
  table.request(2, 1, demand(1), 1, table.now);
  ASSERT_EQ(pick<ReclaimLease>(table.settle()).size(), 1u);
  EXPECT_FALSE(table.not_in_use(held[0].worker, held[0].lease, table.now)) << "nobody has asked";
  auto events = table.until<AskWorker>(1);
  EXPECT_EQ(pick<AskWorker>(events).at(0).worker, held[0].worker);
  EXPECT_EQ(pick<AskWorker>(events).at(0).owner, OwnerId{1});
  EXPECT_EQ(pick<ReclaimLease>(events).size(), 1u) << "the first one's worker may run for long";
  events = table.until<AskWorker>(2);
  EXPECT_LE(table.now, Time{} + 4s);
  table.request(1, 2, demand(1), 100, table.now);
  table.settle();
  EXPECT_FALSE(table.not_in_use(held[0].worker, held[1].lease, table.now)) << "not its own";
  EXPECT_TRUE(table.not_in_use(held[1].worker, held[1].lease, table.now));
  EXPECT_EQ(pick<Granted>(table.settle()).at(0).owner, OwnerId{2});
  EXPECT_EQ(table.wanted(1, 2), 0u) << "it asks again when it goes on";
  EXPECT_FALSE(table.not_in_use(held[1].worker, held[1].lease, table.now)) << "it is over";
  table.returned(held[1].lease, table.now);  // the late answer of the owner
  table.request(1, 2, demand(1), 100, table.now);
  table.returned(held[0].lease, table.now);
  EXPECT_EQ(pick<Granted>(table.settle()).at(0).owner, OwnerId{1});
  EXPECT_FALSE(table.broken_invariant());
}

TEST(Leases, ASilentProcessOfAnotherNodeIsRefused) {
  Table table(options(1, 1));
  const RequestKind spilled{.spilled = true, .dedicated = false, .job = 0};
  table.request(1, 1, demand(1), 2, table.now, spilled);
  const auto held = pick<Granted>(table.settle()).at(0);
  table.request(2, 1, demand(1), 1, table.now);
  table.until<AskWorker>(1);
  ASSERT_TRUE(table.not_in_use(held.worker, held.lease, table.now));
  const auto events = table.settle();
  ASSERT_EQ(pick<Refused>(events).size(), 1u) << "its agent asks again, here or elsewhere";
  EXPECT_EQ(pick<Refused>(events)[0].count, 1u);
  EXPECT_EQ(pick<Granted>(events).at(0).owner, OwnerId{2});
}

TEST(Leases, OwnersTakeTurns) {
  Table table(options(1, 1));
  table.request(1, 1, demand(1), 100, table.now);
  table.request(2, 1, demand(1), 100, table.now);
  std::vector<OwnerId> order;
  for (int i = 0; i < 6; ++i) {
    const auto grant = pick<Granted>(table.settle())[0];
    order.push_back(grant.owner);
    table.returned(grant.lease, table.now);
  }
  EXPECT_EQ(order, (std::vector<OwnerId>{1, 2, 1, 2, 1, 2}));
}

TEST(Leases, ALargeShapeIsNotStarvedBySmallOnes) {
  Table table(options(4, 8));
  table.request(1, 1, demand(1), 1000, table.now);
  auto running = pick<Granted>(table.settle());
  ASSERT_EQ(running.size(), 4u);
  table.request(2, 1, demand(4), 1, table.now);
  bool served = false;
  for (int step = 0; step < 100 && !served; ++step) {  // each small task takes 100 ms
    table.now += 100ms;
    const auto lease = running.empty() ? 0 : running.front().lease;
    if (lease != 0) {
      running.erase(running.begin());
      table.returned(lease, table.now);
    } else {
      table.on_timer(table.now);
    }
    for (const auto& grant : pick<Granted>(table.settle())) {
      served = served || grant.owner == 2;
      running.push_back(grant);
    }
  }
  EXPECT_TRUE(served);
}

TEST(Leases, DeathsGiveEverythingBack) {
  Table table(options(2, 4, 1));
  ResourceDemand s = demand(1, 0.5);
  s.need.memory = 1 << 20;
  table.request(1, 1, s, 2, table.now);
  const auto grants = pick<Granted>(table.settle());
  ASSERT_EQ(grants.size(), 2u);
  EXPECT_EQ(grants[0].gpus, (std::vector<std::int32_t>{0}));
  EXPECT_EQ(grants[1].gpus, (std::vector<std::int32_t>{0}));
  table.worker_died(grants[0].worker, table.now);
  const auto lost = pick<LeaseLost>(table.settle());
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].lease, grants[0].lease);
  table.owner_died(1, table.now);
  EXPECT_EQ(pick<StopWorker>(table.settle()).size(), 1u);
  EXPECT_EQ(table.lease_count(), 1u);  // in use until the worker is really dead
  table.worker_died(grants[1].worker, table.now);
  EXPECT_EQ(table.lease_count(), 0u);
  EXPECT_EQ(table.self_view().free, table.self_view().total);
}

TEST(Leases, ActorsGetWorkersOfTheirOwn) {
  Table table(options(2, 1));
  table.request(1, 1, demand(1), 1, table.now);
  table.request(0, 77, demand(1), 1, table.now, {.dedicated = true});
  const auto grants = pick<Granted>(table.settle());
  ASSERT_EQ(grants.size(), 2u);  // although max_workers is 1
  const auto& actor = grants[0].key == 77 ? grants[0] : grants[1];
  table.returned(actor.lease, table.now);
  EXPECT_EQ(pick<StopWorker>(table.settle())[0].worker, actor.worker);
}

TEST(Leases, SpillsToTheNodeThePolicyNamesOnce) {
  Table table(options(1, 1));
  table.update_node(node(2, 4), table.now);
  table.request(1, 1, demand(1), 4, table.now);
  const auto events = table.settle();
  EXPECT_EQ(pick<Granted>(events).size() + pick<Spilled>(events).size(), 4u);
  EXPECT_GE(pick<Spilled>(events).size(), 2u);
  Table full(options(1, 1));
  full.update_node(node(2, 4), full.now);
  full.request(9, 1, demand(1), 2, full.now, {.spilled = true});
  const auto passed = full.settle();
  EXPECT_EQ(pick<Granted>(passed).size(), 1u);
  EXPECT_TRUE(pick<Spilled>(passed).empty());  // a spilled request never travels on
}

TEST(Leases, WhatWasSpilledInVainComesBackAndThatNodeIsNotAskedAgain) {
  Table table(options(1, 1));
  table.update_node(node(2, 4), table.now);
  table.request(1, 1, demand(1), 4, table.now);
  auto events = table.settle();
  const std::size_t here = pick<Granted>(events).size();
  const std::size_t spilled = pick<Spilled>(events).size();
  ASSERT_EQ(here + spilled, 4u);
  EXPECT_EQ(table.wanted(1, 1), 0u);
  table.spill_failed(1, 1, demand(1), static_cast<std::uint32_t>(spilled), table.now, {},
                     node_id(2));
  EXPECT_TRUE(pick<Spilled>(table.settle()).empty());
  EXPECT_EQ(table.wanted(1, 1), spilled);
  table.request_more(1, 1, demand(1), 2, table.now);
  EXPECT_EQ(table.wanted(1, 1), spilled + 2);
  table.update_node(node(2, 8), table.now);  // the node has sent its view
  EXPECT_EQ(pick<Spilled>(table.settle()).size(), spilled + 2);
  table.node_gone(node_id(2), table.now);
  table.spill_failed(1, 1, demand(1), 1, table.now, {}, node_id(2));
  EXPECT_EQ(table.wanted(1, 1), 1u);
}

TEST(Leases, WhatWasGivenBackToAnotherNodeIsFreeThereBeforeItSaysSo) {
  Table table(options(0, 1));
  table.update_node(node(2, 2), table.now);
  table.request(1, 1, demand(1), 3, table.now);
  ASSERT_EQ(pick<Spilled>(table.settle()).size(), 2u);
  table.returned_there(node_id(2), demand(1), table.now);
  EXPECT_EQ(pick<Spilled>(table.settle()).size(), 1u) << "the third, in the place of the first";
  table.returned_there(node_id(3), demand(1), table.now);  // a node that is not known
  NodeView full = node(2, 2);
  full.free.cpus = 0;
  table.update_node(full, table.now);
  table.request(1, 1, demand(1), 1, table.now);
  EXPECT_TRUE(pick<Spilled>(table.settle()).empty());
  table.returned_there(node_id(2), demand(1), table.now);  // a lease that node 2's view contains
  EXPECT_EQ(pick<Spilled>(table.settle()).size(), 1u);
}

TEST(Leases, ANodeThatRefusedIsAskedAgainAfterAWhileWhenNothingIsHeardOfIt) {
  Table table(options(1, 1));
  table.update_node(node(2, 4), table.now);
  table.request(1, 1, demand(3), 1, table.now);
  ASSERT_EQ(pick<Spilled>(table.settle()).size(), 1u);
  table.spill_failed(1, 1, demand(3), 1, table.now, {}, node_id(2));
  EXPECT_TRUE(pick<Spilled>(table.settle()).empty());
  ASSERT_TRUE(table.next_deadline());
  table.now = *table.next_deadline();
  table.on_timer(table.now);
  EXPECT_EQ(pick<Spilled>(table.settle()).size(), 1u);
}

TEST(Leases, WhatASilentNodeGaveAndGotBackIsAskedForAgain) {
  Table table(options(1, 1));
  table.update_node(node(2, 1), table.now);
  ResourceDemand there = demand(1);
  there.placement = Placement::node;
  there.node = node_id(2);
  table.request(1, 1, there, 1, table.now);
  ASSERT_EQ(pick<Spilled>(table.settle()).size(), 1u);
  // The other node granted the lease and got it back between two of its reports. Its next report
  // is the same as the last, so it sends none.
  table.request(2, 1, there, 1, table.now);
  EXPECT_TRUE(pick<Spilled>(table.settle()).empty()) << "it may be in use";
  ASSERT_TRUE(table.next_deadline()) << "the request would wait for ever";
  table.now = *table.next_deadline();
  table.on_timer(table.now);
  EXPECT_EQ(pick<Spilled>(table.settle()).size(), 1u);
}

TEST(Leases, WhatWasSpilledLaterToASilentNodeCountsThereForLonger) {
  Table table(options(1, 1));
  table.update_node(node(2, 2), table.now);
  ResourceDemand there = demand(1);
  there.placement = Placement::node;
  there.node = node_id(2);
  for (const OwnerId owner : {OwnerId{1}, OwnerId{2}}) {
    table.request(owner, 1, there, 1, table.now);
    ASSERT_EQ(pick<Spilled>(table.settle()).size(), 1u);
    table.now += 300ms;
  }
  table.request(3, 1, there, 2, table.now);
  EXPECT_EQ(pick<Spilled>(table.settle()).size(), 1u) << "the place of the second is not old yet";
  table.now += 250ms;
  table.on_timer(table.now);
  EXPECT_EQ(pick<Spilled>(table.settle()).size(), 1u);
}

TEST(Leases, WhatANodeSaysOfItselfCountsInsteadOfWhatWasSpilledThere) {
  Table table(options(1, 1));
  table.update_node(node(2, 4), table.now);
  ResourceDemand there = demand(3);
  there.placement = Placement::node;
  there.node = node_id(2);
  table.request(1, 1, there, 1, table.now);
  ASSERT_EQ(pick<Spilled>(table.settle()).size(), 1u);
  NodeView full = node(2, 4);
  full.free.cpus = 0;
  table.update_node(full, table.now);
  table.request(2, 1, there, 1, table.now);
  table.now += 10s;
  table.on_timer(table.now);
  EXPECT_TRUE(pick<Spilled>(table.settle()).empty()) << "it has said that it is full";
}

TEST(Leases, RequestsThatOthersSentAreCounted) {
  Table table(options(1, 1));
  table.request(1, 1, demand(1), 1, table.now);
  EXPECT_EQ(table.spilled_here(), 0u);
  table.request(9, 1, demand(1), 1, table.now, {.spilled = true});
  table.request(9, 1, demand(1), 2, table.now, {.spilled = true});
  table.request(9, 1, demand(1), 0, table.now, {.spilled = true});
  EXPECT_EQ(table.spilled_here(), 2u);
}

TEST(Leases, ASpilledRequestThatWaitsGoesBackWhenAnotherNodeHasRoom) {
  Table table(options(1, 1));
  table.request(1, 1, demand(1), 1, table.now);
  ASSERT_EQ(pick<Granted>(table.settle()).size(), 1u);  // a task that runs for long
  table.request(9, 1, demand(1), 2, table.now, {.spilled = true});
  table.now += 10s;
  table.on_timer(table.now);
  EXPECT_TRUE(pick<Refused>(table.settle()).empty());  // no other node could serve it
  table.update_node(node(3, 4), table.now);
  const auto refused = pick<Refused>(table.settle());
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].owner, OwnerId{9});
  EXPECT_EQ(refused[0].count, 2u);
  ResourceDemand here = demand(1);
  here.placement = Placement::node;
  here.node = node_id(1);
  table.request(9, 2, here, 1, table.now, {.spilled = true});
  table.now += 10s;
  table.on_timer(table.now);
  EXPECT_TRUE(pick<Refused>(table.settle()).empty());  // the task must run here
}

TEST(Leases, ShapesOfLessThanACpuRunSideBySide) {
  LeaseOptions o = options(1, 1);
  o.extra_worker_interval = 10ms;
  Table table(o);
  table.request(1, 1, demand(0.25), 6, table.now);
  std::vector<Granted> granted = pick<Granted>(table.settle());
  for (int i = 0; i < 10; ++i) {
    table.now += 10ms;
    table.on_timer(table.now);
    for (const Granted& grant : pick<Granted>(table.settle())) granted.push_back(grant);
  }
  EXPECT_EQ(granted.size(), 4u);
  EXPECT_EQ(table.worker_count(), 4u) << "no more than there are resources for";
  for (const Granted& grant : granted) table.returned(grant.lease, table.now);
  table.request(1, 1, demand(0.25), 0, table.now);
  table.settle();
  EXPECT_LE(table.worker_count(), 4u);
}

TEST(Leases, ShapesThatTakeNothingAreBoundedByWorkers) {
  LeaseOptions o = options(2, 2);
  o.extra_worker_interval = 0ms;
  Table table(o);
  table.request(1, 1, demand(0), 1000, table.now);
  table.settle();
  EXPECT_EQ(table.worker_count(), 32u);
}

TEST(Leases, ADemandOfLessThanACpuStartsAlthoughAllPlacesAreTaken) {
  for (const double small : {0.0, 0.5}) {
    Table table(options(2 + small, 2));
    table.request(1, 1, demand(1), 2, table.now);
    ASSERT_EQ(pick<Granted>(table.settle()).size(), 2u);
    table.request(1, 2, demand(small), 1, table.now);
    const auto first = pick<Granted>(table.settle());
    ASSERT_EQ(first.size(), 1u) << "two tasks sleep";
    table.returned(first[0].lease, table.now);
    EXPECT_EQ(pick<StopWorker>(table.settle()).size(), 1u) << "nobody needs its worker";
    table.request(1, 3, demand(1), 1, table.now);
    EXPECT_TRUE(pick<StartWorker>(table.settle()).empty());
  }
}

TEST(Leases, WhatNeedsNothingIsNotHeldBack) {
  Table table(options(2, 2));
  table.request(1, 1, demand(1), 1, table.now);
  ASSERT_EQ(pick<Granted>(table.settle()).size(), 1u);
  table.request(2, 1, demand(2), 1, table.now);
  table.now += 3s;  // the large one holds back younger ones
  table.request(3, 1, demand(1), 1, table.now);
  EXPECT_TRUE(pick<Granted>(table.settle()).empty());
  table.request(3, 2, demand(0), 1, table.now);
  EXPECT_EQ(pick<Granted>(table.settle()).size(), 1u);
}

// With a look at each waiting request for each grant this takes seconds.
TEST(Leases, ThousandsOfDifferentDemandsAreServedInTurn) {
  constexpr std::uint64_t kDemands = 4000;
  Table table(options(2, 2));
  std::vector<Granted> running;
  const auto settle = [&] {
    for (const Granted& grant : pick<Granted>(table.settle())) running.push_back(grant);
  };
  const std::clock_t begun = std::clock();
  for (std::uint64_t i = 1; i <= kDemands; ++i) {
    ResourceDemand one = demand(1);
    one.need.memory = static_cast<std::int64_t>(i);
    table.request(1, LeaseKey::of(i), one, 1, table.now);
    settle();
  }
  std::uint64_t served = 0;
  for (; !running.empty(); ++served) {
    EXPECT_EQ(running.front().key, LeaseKey::of(served + 1));
    table.returned(running.front().lease, table.now);
    running.erase(running.begin());
    settle();
  }
  EXPECT_EQ(served, kDemands);
  EXPECT_LT(std::clock() - begun, CLOCKS_PER_SEC);
}

// As above, but what they wait for is no amount that the search knows.
TEST(Leases, ManyThatWaitForACustomResourceDoNotHideOneThatDoesNot) {
  LeaseOptions o = options(2, 2);
  o.total.custom = {{"licence", kUnit}};
  Table table(o);
  ResourceDemand licence = demand(0);
  licence.need.custom = {{"licence", kUnit}};
  for (std::uint64_t i = 1; i <= 500; ++i) table.request(1, LeaseKey::of(i), licence, 1, table.now);
  ASSERT_EQ(pick<Granted>(table.settle()).size(), 1u);
  table.request(2, 1, demand(1), 1, table.now, {.spilled = false, .dedicated = false, .job = 7});
  std::vector<Granted> granted = pick<Granted>(table.settle());
  for (int i = 0; i < 20 && granted.empty(); ++i) {
    ASSERT_TRUE(table.next_deadline());
    table.on_timer(table.now = *table.next_deadline());
    granted = pick<Granted>(table.settle());
  }
  ASSERT_EQ(granted.size(), 1u);
  EXPECT_EQ(granted[0].owner, OwnerId{2});
}

TEST(Leases, ARequestThatNoNodeCanGrantIsRefusedAndTheTableGoesOn) {
  LeaseOptions options;
  options.total = {.cpus = 2 * kUnit, .memory = 1 << 30, .custom = {{"tpu", kUnit}}};
  options.infeasible_timeout = 0s;
  LeaseTable table(options, node_id(1));
  std::vector<ResourceDemand> requests(4);
  requests[0].need.memory = -1;
  requests[1].need.custom = {{"tpu", kUnit}, {"tpu", kUnit}};  // each amount alone fits
  requests[2].need.cpus = std::numeric_limits<std::int64_t>::min();
  requests[3].need.custom = {{"tpu", std::numeric_limits<std::int64_t>::max()}, {"tpu", 2}};
  LeaseKey key;
  for (const ResourceDemand& request : requests) table.request(1, ++key, request, 1, Time{});
  table.worker_started(7, Time{});
  std::size_t refused = 0;
  for (const auto& event : table.take_events()) {
    EXPECT_FALSE(std::holds_alternative<Granted>(event));
    refused += std::holds_alternative<Refused>(event) ? 1 : 0;
  }
  EXPECT_EQ(refused, requests.size());
  table.request(1, ++key, demand(1), 1, Time{});
  bool granted = false;
  for (const auto& event : table.take_events())
    granted = granted || std::holds_alternative<Granted>(event);
  EXPECT_TRUE(granted) << "an honest request after them";
}

TEST(Leases, InfeasibleIsRefusedAfterItsTimeoutUnlessANodeComes) {
  LeaseOptions o = options(1, 1);
  Table table(o);
  table.request(1, 1, demand(8), 1, table.now);
  EXPECT_TRUE(table.settle().empty());
  ASSERT_TRUE(table.next_deadline().has_value());
  EXPECT_EQ(*table.next_deadline(), table.now + 60s);
  table.now += 60s;
  table.on_timer(table.now);
  const auto refused = pick<Refused>(table.settle());
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].why, "needs 8 CPU, no node has more than 1");
  EXPECT_EQ(refused[0].count, 1u);
  table.request(1, 1, demand(8), 1, table.now);
  table.update_node(node(2, 8), table.now);
  EXPECT_EQ(pick<Spilled>(table.settle()).size(), 1u);
  o.infeasible_timeout = 0s;
  Table embedded(o);
  embedded.request(1, 1, demand(8), 1, embedded.now);
  EXPECT_EQ(pick<Refused>(embedded.settle()).size(), 1u);
}

TEST(Leases, ASlowNodeAsksForItsLeasesAndSendsWorkElsewhereUntilItIsFastAgain) {
  Table table(options(2, 2));
  table.update_node(node(2, 4), table.now);
  table.request(1, 1, demand(1), 1, table.now);
  const auto granted = pick<Granted>(table.settle());
  ASSERT_EQ(granted.size(), 1u);
  table.set_slow(true, table.now);
  const auto reclaimed = pick<ReclaimLease>(table.settle());
  ASSERT_EQ(reclaimed.size(), 1u);
  EXPECT_EQ(reclaimed[0].lease, granted[0].lease);
  table.set_slow(true, table.now);
  EXPECT_TRUE(table.settle().empty());
  EXPECT_TRUE(table.self_view().slow);
  table.request(1, 1, demand(1), 1, table.now);
  const auto spilled = pick<Spilled>(table.settle());
  ASSERT_EQ(spilled.size(), 1u);
  EXPECT_EQ(spilled[0].node, node_id(2));
  table.request(9, 1, demand(1), 1, table.now, {.spilled = true});
  EXPECT_EQ(pick<Refused>(table.settle()).size(), 1u) << "its own agent asks elsewhere";
  ResourceDemand here = demand(1);
  here.placement = Placement::node;
  here.node = node_id(1);
  table.request(9, 2, here, 1, table.now, {.spilled = true});
  const auto must = pick<Granted>(table.settle());
  ASSERT_EQ(must.size(), 1u) << "it must run here";
  table.set_slow(false, table.now);
  table.returned(granted[0].lease, table.now);
  table.returned(must[0].lease, table.now);
  table.request(1, 2, demand(1), 1, table.now);
  EXPECT_EQ(pick<Granted>(table.settle()).size(), 1u);
}

TEST(Leases, WhatWaitsForAFasterNodeKeepsNothingBackOnASlowOne) {
  Table table(options(2, 2));
  NodeView full = node(2, 4);
  take(full, demand(4).need);
  table.update_node(full, table.now);
  table.set_slow(true, table.now);
  table.request(1, 1, demand(1), 1, table.now);
  EXPECT_TRUE(pick<Granted>(table.settle()).empty());
  ResourceDemand here = demand(1);
  here.placement = Placement::node;
  here.node = node_id(1);
  table.request(9, 1, here, 1, table.now);
  EXPECT_EQ(pick<Granted>(table.settle()).size(), 1u);
  table.now += 3s;  // time enough for an old waiting request to hold younger ones back
  table.request(9, 2, here, 1, table.now);
  const auto events = table.settle();
  EXPECT_EQ(pick<Granted>(events).size(), 1u);
  EXPECT_TRUE(pick<ReclaimLease>(events).empty());
}

TEST(Leases, DrainingGrantsNothingNew) {
  Table table(options(2, 2));
  table.request(1, 1, demand(1), 1, table.now);
  table.settle();
  table.set_draining(true, table.now);
  table.request(1, 2, demand(1), 1, table.now);
  EXPECT_TRUE(table.settle().empty());
  table.request(9, 1, demand(1), 1, table.now, {.spilled = true});
  EXPECT_EQ(pick<Refused>(table.settle()).size(), 1u);  // the request's own agent asks another node
  table.set_draining(false, table.now);
  EXPECT_EQ(pick<Granted>(table.settle()).size(), 1u);
}

TEST(Leases, ABlockedWorkerThatKeptItsResourcesWouldBeNoticed) {
  simulation_hooks.mutant = [](const char* name) {
    return std::string_view(name) == "leases.blocked_keeps_resources";
  };
  Table table(options(1, 1));
  table.request(1, 1, demand(1), 1, table.now);
  table.blocked(pick<Granted>(table.settle()).at(0).worker, table.now);
  table.request(2, 1, demand(1), 1, table.now);
  EXPECT_TRUE(pick<Granted>(table.settle()).empty());  // the test of chains would hang here
  simulation_hooks.mutant = nullptr;
}

// --- random trees of tasks that block on their children, on one small node

struct Task {
  int depth = 0, children_left = 0;
  int parent = -1;
  JobNumber job;
  bool started = false, done = false, waiting = false;
  LeaseId lease;
  WorkerId worker;
};

struct Forest {
  Random random;
  LeaseTable table;
  Time now{};
  std::vector<Task> tasks;
  std::vector<ResourceDemand> demands;
  WorkerId next_worker;
  std::size_t finished = 0;
  int deaths = 0;
  int displaced = 0;
  std::uint64_t jobs;
  std::map<WorkerId, JobNumber> worker_jobs;

  Forest(std::uint64_t seed, std::uint64_t job_count)
      : random(seed),
        table(options(1 + static_cast<double>(random.below(3)),
                      1 + static_cast<std::uint32_t>(random.below(3)), 1),
              node_id(1)),
        jobs(job_count) {}

  int add(int parent, int depth) {
    Task task;
    task.parent = parent;
    task.depth = depth;
    task.job = parent < 0 ? JobNumber::of(random.below(jobs))
                          : tasks[static_cast<std::size_t>(parent)].job;
    tasks.push_back(task);
    demands.push_back(
        demand(static_cast<double>(random.below(11)) / 10,
               random.chance(0.3) ? static_cast<double>(1 + random.below(10)) / 10 : 0));
    request(static_cast<int>(tasks.size()) - 1);
    return static_cast<int>(tasks.size()) - 1;
  }
  void request(int id) {
    table.request(1000, LeaseKey::of(static_cast<std::uint64_t>(id)),
                  demands[static_cast<std::size_t>(id)], 1, now,
                  of_job(tasks[static_cast<std::size_t>(id)].job));
  }
  void run() {
    for (auto roots = 1 + random.below(4); roots > 0; --roots) add(-1, 3);
    for (int step = 0; step < 20000 && finished < tasks.size(); ++step) {
      now += Duration(random.below(20'000'000));
      handle_events();
      table.on_timer(now);
      handle_events();
      act();
      ASSERT_FALSE(table.broken_invariant().has_value()) << *table.broken_invariant();
    }
    EXPECT_EQ(finished, tasks.size()) << "a chain of blocked tasks did not finish";
    for (int i = 0; i < 20; ++i) {
      handle_events();
      table.on_timer(now += 1s);
    }
    EXPECT_EQ(table.lease_count(), 0u);
    EXPECT_EQ(table.self_view().free, table.self_view().total);
  }
  void handle_events() {
    for (bool more = true; more;) {
      const auto events = table.take_events();
      more = !events.empty();
      for (const auto& event : events) handle(event);
    }
  }
  void handle(const LeaseEvent& event) {
    if (const auto* start = std::get_if<StartWorker>(&event)) {
      if (random.chance(0.1)) return table.worker_start_failed(now, false, start->job);
      worker_jobs[++next_worker] = start->job;
      table.worker_started(next_worker, now, false, start->job);
    } else if (const auto* granted = std::get_if<Granted>(&event)) {
      Task& task = tasks[granted->key.value];
      ASSERT_EQ(worker_jobs.at(granted->worker), task.job) << "a worker of another job";
      task.started = true;
      task.lease = granted->lease;
      task.worker = granted->worker;
    } else if (const auto* stop = std::get_if<StopWorker>(&event)) {
      displaced += stop->why == "another job needs its place" ? 1 : 0;
      table.worker_died(stop->worker, now);
    } else if (const auto* lost = std::get_if<LeaseLost>(&event)) {
      for (std::size_t i = 0; i < tasks.size(); ++i) {
        Task& task = tasks[i];
        if (task.lease != lost->lease || task.done || !task.started) continue;
        task.started = task.waiting = false;  // the task is retried; its children run on
        task.lease = 0;
        request(static_cast<int>(i));
      }
    }
  }
  void act() {
    const std::size_t i = random.below(tasks.size());
    Task& task = tasks[i];
    if (!task.started || task.done) return;
    if (random.chance(0.01)) {
      ++deaths;
      return table.worker_died(task.worker, now);
    }
    if (task.waiting) return;
    if (task.depth > 0 && random.chance(0.7)) {
      const int depth = task.depth - 1;
      tasks[i].depth = 0;
      const int children = 1 + static_cast<int>(random.below(3));
      tasks[i].children_left = children;
      tasks[i].waiting = true;
      for (int c = 0; c < children; ++c) add(static_cast<int>(i), depth);
      table.blocked(tasks[i].worker, now);
      return;
    }
    if (task.children_left > 0) {  // a retry waits again for the children that still run
      task.waiting = true;
      return table.blocked(task.worker, now);
    }
    finish(i);
  }
  void finish(std::size_t i) {
    tasks[i].done = true;
    ++finished;
    table.returned(tasks[i].lease, now);
    if (tasks[i].parent < 0) return;
    Task& parent = tasks[static_cast<std::size_t>(tasks[i].parent)];
    if (--parent.children_left > 0 || !parent.waiting) return;
    parent.waiting = false;
    table.unblocked(parent.worker, now);
  }
};

TEST(LeaseForest, RandomBlockedTreesAlwaysFinishAndAmountsAddUp) {
  std::size_t tasks = 0;
  int deaths = 0, displaced = 0;
  for (std::uint64_t seed = 0; seed < 160; ++seed) {
    Forest forest(seed, 1 + seed % 4);
    forest.run();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    tasks += forest.tasks.size();
    deaths += forest.deaths;
    displaced += forest.displaced;
  }
  EXPECT_GT(tasks, 1000u);
  EXPECT_GT(deaths, 20);
  EXPECT_GT(displaced, 20);
}

}  // namespace
}  // namespace troupe::scheduling
