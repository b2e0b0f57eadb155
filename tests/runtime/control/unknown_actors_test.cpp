// Tests how long control waits for the spawn of an actor that somebody watches or kills.
#include "troupe/runtime/control/unknown_actors.hpp"

#include <gtest/gtest.h>

namespace troupe::control::unknown_actors_test {
namespace {

using namespace std::chrono_literals;

const ActorId kFirst{7, 1}, kSecond{7, 2};
const NodeId kA{0, 1}, kB{0, 2};
constexpr Time kNow = Time{} + 1000s;

TEST(UnknownActors, EndWhenAllNodesHaveBeenHeardLongEnough) {
  UnknownActors unknown(5s, 15s);
  EXPECT_FALSE(unknown.next_deadline());
  unknown.of(kFirst, kNow).watchers.insert(kA);
  unknown.all_heard_since(kNow + 3s);
  EXPECT_EQ(unknown.next_deadline(), kNow + 8s);
  EXPECT_FALSE(unknown.take_expired(kNow + 7s));
  const auto late = unknown.take_expired(kNow + 8s);
  ASSERT_TRUE(late);
  EXPECT_EQ(late->first, kFirst);
  EXPECT_EQ(late->second.watchers, std::set{kA});
  EXPECT_FALSE(unknown.next_deadline());
}

TEST(UnknownActors, EndAtTheLongestWaitThoughANodeIsSilent) {
  UnknownActors unknown(5s, 15s);
  unknown.of(kFirst, kNow);
  unknown.all_heard_since(kNow + 1h);
  EXPECT_EQ(unknown.next_deadline(), kNow + 15s);
}

TEST(UnknownActors, EndInTheOrderOfTheirFirstQuestions) {
  UnknownActors unknown(5s, 15s);
  unknown.of(kSecond, kNow);
  unknown.of(kFirst, kNow + 1s);
  unknown.of(kSecond, kNow + 2s);
  EXPECT_EQ(unknown.take_expired(kNow + 1h)->first, kSecond);
  EXPECT_EQ(unknown.take_expired(kNow + 1h)->first, kFirst);
  EXPECT_FALSE(unknown.take_expired(kNow + 1h));
}

TEST(UnknownActors, TakenOneHasItsKillsAndDoesNotExpire) {
  UnknownActors unknown(5s, 15s);
  unknown.of(kFirst, kNow).killed = true;
  unknown.of(kFirst, kNow).killed_life = 4;
  const auto asked = unknown.take(kFirst);
  EXPECT_TRUE(asked.killed);
  EXPECT_EQ(asked.killed_life, 4u);
  EXPECT_FALSE(unknown.take_expired(kNow + 1h));
  EXPECT_FALSE(unknown.take(kFirst).killed) << "nothing is left of it";
}

TEST(UnknownActors, WatcherThatLeavesIsNotTold) {
  UnknownActors unknown(5s, 15s);
  unknown.of(kFirst, kNow).watchers = {kA, kB};
  unknown.of(kSecond, kNow).watchers = {kA, kB};
  unknown.unwatch(kFirst, kA);
  unknown.node_gone(kB);
  EXPECT_TRUE(unknown.take(kFirst).watchers.empty());
  EXPECT_EQ(unknown.take(kSecond).watchers, std::set{kA});
}

}  // namespace
}  // namespace troupe::control::unknown_actors_test
