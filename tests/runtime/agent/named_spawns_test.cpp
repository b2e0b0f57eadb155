// Tests NamedSpawns: spawns with names leave in order, once everything that was released before
// is settled.
#include "troupe/runtime/agent/named_spawns.hpp"

#include <gtest/gtest.h>

namespace troupe::agent::named_spawns_test {
namespace {

NamedSpawns::Spawn spawn(ProcessIndex n) {
  NamedSpawns::Spawn one;
  one.process = n;
  one.message.name = "name";
  return one;
}

TEST(NamedSpawns, ASpawnLeavesAfterThreeSettlements) {
  NamedSpawns spawns;
  EXPECT_FALSE(spawns.pending());
  spawns.add(spawn(7));
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(spawns.settled().empty());
    EXPECT_TRUE(spawns.pending());
  }
  const auto due = spawns.settled();
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0].process, ProcessIndex{7});
  EXPECT_EQ(due[0].message.name, "name");
  EXPECT_FALSE(spawns.pending());
}

TEST(NamedSpawns, LaterOnesLeaveLaterAndInOrder) {
  NamedSpawns spawns;
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(spawns.settled().empty());
  spawns.add(spawn(1));
  spawns.add(spawn(2));
  EXPECT_TRUE(spawns.settled().empty());
  spawns.add(spawn(3));
  EXPECT_TRUE(spawns.settled().empty());
  const auto first = spawns.settled();
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].process, ProcessIndex{1});
  EXPECT_EQ(first[1].process, ProcessIndex{2});
  const auto second = spawns.settled();
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].process, ProcessIndex{3});
}

}  // namespace
}  // namespace troupe::agent::named_spawns_test
