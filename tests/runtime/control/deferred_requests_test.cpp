// Tests what becomes of spawns and finds that control cannot answer yet.
#include "troupe/runtime/control/deferred_requests.hpp"

#include <gtest/gtest.h>

namespace troupe::control::deferred_requests_test {
namespace {

using namespace std::chrono_literals;

const NodeId kA{0, 1}, kB{0, 2};
constexpr Time kNow = Time{} + 1000s;

SpawnActor spawn(std::uint64_t n, NodeId from, bool detached = false) {
  SpawnActor message;
  message.from = from;
  message.request = n;
  message.spec.id = ActorId{7, n};
  message.spec.detached = detached;
  return message;
}

TEST(DeferredRequests, SpawnThatWaitsForANameIsLateAtItsFirstTime) {
  DeferredRequests deferred;
  deferred.wait_for_name(spawn(1, kA), kNow + 8s);
  for (const auto& [who, again] : deferred.take_spawns()) deferred.wait_for_name(again, kNow + 20s);
  EXPECT_EQ(deferred.next_deadline(), kNow + 8s);
  EXPECT_TRUE(deferred.take_late(kNow + 7s).empty());
  const auto late = deferred.take_late(kNow + 8s);
  ASSERT_EQ(late.size(), 1u);
  EXPECT_EQ(late[0].spec.id, (ActorId{7, 1}));
  EXPECT_FALSE(deferred.next_deadline());
  EXPECT_TRUE(deferred.take_spawns().empty());
}

TEST(DeferredRequests, SpawnThatFoundItsNameIsNotLate) {
  DeferredRequests deferred;
  deferred.wait_for_name(spawn(1, kA), kNow + 8s);
  deferred.found_name(spawn(1, kA));
  deferred.wait(spawn(1, kA));
  EXPECT_TRUE(deferred.take_late(kNow + 1h).empty());
  EXPECT_EQ(deferred.take_spawns().size(), 1u);
}

TEST(DeferredRequests, TakenSpawnsTellWhetherTheyWaitForAName) {
  DeferredRequests deferred;
  deferred.wait_for_name(spawn(1, kA), kNow + 8s);
  deferred.wait(spawn(2, kA));
  const auto named = deferred.take_if([](const SpawnActor&, bool for_name) { return for_name; });
  ASSERT_EQ(named.size(), 1u);
  EXPECT_EQ(named[0].request, 1u);
  EXPECT_FALSE(deferred.next_deadline()) << "its time goes with it";
  EXPECT_EQ(deferred.take_spawns().size(), 1u);
}

TEST(DeferredRequests, DeadNodeKeepsOnlySpawnsOfDetachedActors) {
  DeferredRequests deferred;
  deferred.wait({kA, 5}, {"default", "x"});
  deferred.wait({kB, 5}, {"default", "y"});
  deferred.wait(spawn(1, kA));
  deferred.wait(spawn(2, kA, true));
  deferred.wait(spawn(3, kB));
  deferred.node_gone(kA);
  const auto finds = deferred.take_finds();
  ASSERT_EQ(finds.size(), 1u);
  EXPECT_EQ(finds.begin()->second.second, "y");
  EXPECT_EQ(deferred.maker_of(ActorId{7, 1}), std::nullopt);
  EXPECT_EQ(deferred.maker_of(ActorId{7, 2}), NodeId{}) << "nobody needs its answer";
  EXPECT_EQ(deferred.maker_of(ActorId{7, 3}), kB);
}

}  // namespace
}  // namespace troupe::control::deferred_requests_test
