// Tests which dead actors a later control must know of, and for how long.
#include "troupe/runtime/control/tombstones.hpp"
#include "troupe/runtime/control/memory_store.hpp"

#include <gtest/gtest.h>
#include <memory>

namespace troupe::control::tombstones_test {
namespace {

const ActorId kActor{7, 1};
const NodeId kHost{0, 1}, kMaker{0, 2}, kReporter{0, 3};

/// Tombstones whose writes go to a store at once.
struct TombstonesTest : testing::Test {
  std::unique_ptr<Store> store =
      open_memory_store(std::make_shared<MemoryDisk>(1), StoreOptions{}).value();
  Tombstones stones;
  Batch writes;

  bool is_stored() {
    EXPECT_TRUE(store->commit({&writes, 1}).ok());
    writes = {};
    return !read_actors(*store).value().killed.empty();
  }
};

TEST_F(TombstonesTest, StaysUntilTheProcessHasEnded) {
  stones.add(kActor, {.node = kHost, .epoch = 1, .life = 5}, writes);
  EXPECT_TRUE(is_stored());
  EXPECT_TRUE(stones.may_live(kActor));
  EXPECT_FALSE(stones.life_ended(kActor, 4, false, false, writes)) << "an earlier life";
  EXPECT_TRUE(stones.may_live(kActor));
  EXPECT_TRUE(stones.life_ended(kActor, 5, false, false, writes));
  EXPECT_FALSE(stones.has(kActor));
  EXPECT_FALSE(is_stored());
}

TEST_F(TombstonesTest, StaysUntilReporterAndMakerHaveHeard) {
  stones.add(kActor, {.life = 5, .reporters = {kReporter}, .maker = {kMaker, true}}, writes);
  EXPECT_FALSE(stones.may_live(kActor));
  stones.has_heard(kActor, kReporter, false, writes);
  EXPECT_TRUE(stones.has(kActor));
  stones.has_heard(kActor, kMaker, false, writes);
  EXPECT_FALSE(stones.has(kActor));
  EXPECT_FALSE(is_stored());
}

TEST_F(TombstonesTest, ReporterOfTheEndIsKept) {
  stones.add(kActor, {.node = kHost, .epoch = 1, .life = 5}, writes);
  EXPECT_TRUE(stones.life_ended(kActor, 5, true, false, writes));
  ASSERT_TRUE(stones.has(kActor)) << "its node tells a later control of the end";
  stones.has_heard(kActor, kHost, false, writes);
  EXPECT_FALSE(stones.has(kActor));
}

TEST_F(TombstonesTest, StayWhileNodesAreAwaited) {
  stones.add(kActor, {.life = 5}, writes);
  stones.has_heard(kActor, kMaker, true, writes);
  EXPECT_TRUE(stones.has(kActor));
  stones.drop_unneeded(writes);
  EXPECT_FALSE(stones.has(kActor));
}

TEST_F(TombstonesTest, FirstOfAnActorStays) {
  stones.add(kActor, {.node = kHost, .epoch = 1, .life = 5}, writes);
  stones.add(kActor, {.life = 6}, writes);
  EXPECT_TRUE(stones.may_live(kActor));
  EXPECT_EQ(stones.find(kActor)->life, 5u);
}

TEST_F(TombstonesTest, NodeThatDoesNotListTheActorIsNotItsHost) {
  stones.add(kActor, {.node = kHost, .epoch = 1, .life = 5, .starts = true}, writes);
  stones.node_spoke({.node = kHost, .epoch = 1}, false, writes);
  EXPECT_TRUE(stones.may_live(kActor)) << "the start is on its way";
  stones.on_reset(kHost);
  stones.node_spoke({.node = kHost, .epoch = 2}, false, writes);
  EXPECT_TRUE(stones.may_live(kActor)) << "a node of another epoch";
  stones.node_spoke({.node = kHost, .epoch = 1}, false, writes);
  EXPECT_FALSE(stones.has(kActor));
}

TEST_F(TombstonesTest, MakerIsKeptUntilItDoesNotRepeatTheSpawn) {
  stones.add(kActor, {.life = 5, .maker = {kMaker, true}}, writes);
  stones.node_spoke({.node = kMaker, .epoch = 1, .has_asked = true}, false, writes);
  EXPECT_TRUE(stones.has(kActor)) << "it has asked";
  stones.on_registered(kMaker);
  stones.node_spoke({.node = kMaker, .epoch = 1, .has_asked = false}, false, writes);
  EXPECT_TRUE(stones.has(kActor)) << "it may still ask";
  stones.node_spoke({.node = kMaker, .epoch = 1, .has_asked = true}, false, writes);
  EXPECT_FALSE(stones.has(kActor));
}

TEST_F(TombstonesTest, RestoredOneKnowsLifeAndManner) {
  stones.restore({kActor, 5, true});
  ASSERT_TRUE(stones.has(kActor));
  EXPECT_FALSE(stones.may_live(kActor)) << "no node has reported a life of it";
  EXPECT_TRUE(stones.find(kActor)->gracefully);
  EXPECT_FALSE(stones.life_ended(kActor, 4, false, false, writes));
  EXPECT_TRUE(stones.life_ended(kActor, 5, false, false, writes));
  EXPECT_FALSE(stones.has(kActor));
}

}  // namespace
}  // namespace troupe::control::tombstones_test
