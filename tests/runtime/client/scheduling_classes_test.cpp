// Tests the key of a task with large arguments: tasks whose arguments lie on one node share
// leases of their own.
#include "troupe/runtime/client/scheduling_classes.hpp"

#include <gtest/gtest.h>

namespace troupe::client::scheduling_classes_test {
namespace {

constexpr NodeId kHere{0, 1}, kThere{0, 2}, kElsewhere{0, 3};
constexpr std::uint64_t kMiB = 1 << 20;

Nearest at(NodeId node, std::uint64_t bytes) {
  Nearest most;
  most.add(node, bytes);
  return most;
}

TEST(SchedulingClasses, TheNodeWithMostBytesCounts) {
  Nearest most;
  EXPECT_FALSE(most.node());
  most.add(kHere, 3 * kMiB);
  most.add(kThere, 2 * kMiB);
  EXPECT_EQ(most.node(), kHere);
  most.add(kThere, 2 * kMiB);
  EXPECT_EQ(most.node(), kThere);
  EXPECT_EQ(most.bytes(), 4 * kMiB);
  most.add(kHere, kMiB);
  EXPECT_EQ(most.node(), kThere) << "as many: the first to have them";
}

TEST(SchedulingClasses, TasksThatBelongElsewhereHaveKeysOfTheirOwn) {
  SchedulingClasses classes;
  const LeaseKey there = classes.place(0, at(kThere, kMiB), kHere);
  EXPECT_NE(there, LeaseKey{});
  EXPECT_EQ(classes.at(there).near, kThere);
  EXPECT_EQ(classes.at(there).bytes, kMiB);
  EXPECT_EQ(classes.place(0, at(kThere, 2 * kMiB), kHere), there);
  const LeaseKey other = classes.place(there, at(kElsewhere, kMiB), kHere);
  EXPECT_NE(other, there) << "a task that runs again, after its argument was lost and made anew";
  EXPECT_EQ(classes.place(other, at(kThere, kMiB), kHere), there);
  EXPECT_EQ(classes.place(other, Nearest(), kHere), LeaseKey{});
}

TEST(SchedulingClasses, SmallArgumentsMoveAndLocalOnesKeepThePlainKey) {
  SchedulingClasses classes;
  EXPECT_EQ(classes.place(0, at(kThere, SchedulingClasses::kWorthIt - 1), kHere), LeaseKey{});
  EXPECT_EQ(classes.at(0).bytes, 0u);
  EXPECT_EQ(classes.place(0, at(kHere, kMiB), kHere), LeaseKey{});
  EXPECT_EQ(classes.at(0).near, kHere);
  EXPECT_EQ(classes.place(0, Nearest(), kHere), LeaseKey{});
  EXPECT_FALSE(classes.at(0).near) << "what was placed last counts";
  EXPECT_EQ(classes.place(0, at(NodeId{}, kMiB), kHere), LeaseKey{}) << "nobody knows where";
}

TEST(SchedulingClasses, AShapeHasOneKeyWhateverBelongsWhere) {
  SchedulingClasses classes;
  wire::ResourceDemand two;
  two.cpus = 20'000;
  EXPECT_EQ(classes.key_for(wire::ResourceDemand{}), LeaseKey{});
  const LeaseKey there = classes.place(0, at(kThere, kMiB), kHere);
  const LeaseKey plain = classes.key_for(two);
  EXPECT_EQ(classes.key_for(wire::ResourceDemand{}), LeaseKey{});
  EXPECT_EQ(classes.key_for(two), plain);
  const LeaseKey two_there = classes.place(plain, at(kThere, kMiB), kHere);
  EXPECT_NE(two_there, there);
  EXPECT_EQ(classes.at(two_there).demand, two);
  EXPECT_EQ(classes.key_for(two), plain);
}

TEST(SchedulingClasses, AKeyThatNobodyUsesIsForgottenAndNotGivenOutAgain) {
  SchedulingClasses classes;
  wire::ResourceDemand two;
  two.cpus = 20'000;
  const LeaseKey plain = classes.key_for(two);
  const LeaseKey there = classes.place(plain, at(kThere, kMiB), kHere);
  classes.forget(plain);
  EXPECT_TRUE(classes.knows(plain)) << "the other has its demand from it";
  EXPECT_EQ(classes.place(there, Nearest(), kHere), plain) << "it is used again";
  classes.forget(there);
  EXPECT_FALSE(classes.knows(there));
  EXPECT_NE(classes.place(plain, at(kThere, kMiB), kHere), there);
  classes.forget(plain);
  classes.forget(LeaseKey::of(there.value + 1));
  classes.forget(0);
  EXPECT_EQ(classes.size(), 1u) << "only the default demand is left";
  EXPECT_TRUE(classes.knows(0));
  EXPECT_GT(classes.key_for(two), LeaseKey::of(there.value + 1));
}

TEST(SchedulingClasses, NodesHaveSmallNumbers) {
  SchedulingClasses classes;
  EXPECT_EQ(classes.number_of(NodeId{}), 0u);
  const std::uint32_t there = classes.number_of(kThere);
  EXPECT_NE(there, 0u);
  EXPECT_EQ(classes.number_of(kElsewhere), there + 1);
  EXPECT_EQ(classes.node(there), kThere);
  EXPECT_FALSE(classes.node(0) || classes.node(99));
}

}  // namespace
}  // namespace troupe::client::scheduling_classes_test
