// Which key a task of large arguments gets: those of one node share leases of their own.
#include "troupe/runtime/client/wishes.hpp"

#include <gtest/gtest.h>

namespace troupe::client::wishes_test {
namespace {

constexpr NodeId kHere{0, 1}, kThere{0, 2}, kElsewhere{0, 3};
constexpr std::uint64_t kMiB = 1 << 20;

Nearest at(NodeId node, std::uint64_t bytes) {
  Nearest most;
  most.add(node, bytes);
  return most;
}

TEST(Wishes, TheNodeWithMostBytesCounts) {
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

TEST(Wishes, TasksThatBelongElsewhereHaveKeysOfTheirOwn) {
  Wishes wishes;
  const std::uint64_t there = wishes.place(0, at(kThere, kMiB), kHere);
  EXPECT_NE(there, 0u);
  EXPECT_EQ(wishes.at(there).near, kThere);
  EXPECT_EQ(wishes.at(there).bytes, kMiB);
  EXPECT_EQ(wishes.place(0, at(kThere, 2 * kMiB), kHere), there);
  const std::uint64_t other = wishes.place(there, at(kElsewhere, kMiB), kHere);
  EXPECT_NE(other, there) << "a task that runs again, after its argument was lost and made anew";
  EXPECT_EQ(wishes.place(other, at(kThere, kMiB), kHere), there);
  EXPECT_EQ(wishes.place(other, Nearest(), kHere), 0u);
}

TEST(Wishes, SmallArgumentsMoveAndLocalOnesKeepThePlainKey) {
  Wishes wishes;
  EXPECT_EQ(wishes.place(0, at(kThere, Wishes::kWorthIt - 1), kHere), 0u);
  EXPECT_EQ(wishes.at(0).bytes, 0u);
  EXPECT_EQ(wishes.place(0, at(kHere, kMiB), kHere), 0u);
  EXPECT_EQ(wishes.at(0).near, kHere);
  EXPECT_EQ(wishes.place(0, Nearest(), kHere), 0u);
  EXPECT_FALSE(wishes.at(0).near) << "what was placed last counts";
  EXPECT_EQ(wishes.place(0, at(NodeId{}, kMiB), kHere), 0u) << "nobody knows where";
}

TEST(Wishes, AShapeHasOneKeyWhateverBelongsWhere) {
  Wishes wishes;
  wire::Shape two;
  two.cpus = 20'000;
  EXPECT_EQ(wishes.key_for(wire::Shape{}), 0u);
  const std::uint64_t there = wishes.place(0, at(kThere, kMiB), kHere);
  const std::uint64_t plain = wishes.key_for(two);
  EXPECT_EQ(wishes.key_for(wire::Shape{}), 0u);
  EXPECT_EQ(wishes.key_for(two), plain);
  const std::uint64_t two_there = wishes.place(plain, at(kThere, kMiB), kHere);
  EXPECT_NE(two_there, there);
  EXPECT_EQ(wishes.at(two_there).shape, two);
  EXPECT_EQ(wishes.key_for(two), plain);
}

TEST(Wishes, AKeyThatNobodyUsesIsForgottenAndNotGivenOutAgain) {
  Wishes wishes;
  wire::Shape two;
  two.cpus = 20'000;
  const std::uint64_t plain = wishes.key_for(two);
  const std::uint64_t there = wishes.place(plain, at(kThere, kMiB), kHere);
  wishes.forget(plain);
  EXPECT_TRUE(wishes.knows(plain)) << "the other has its shape from it";
  EXPECT_EQ(wishes.place(there, Nearest(), kHere), plain) << "it is used again";
  wishes.forget(there);
  EXPECT_FALSE(wishes.knows(there));
  EXPECT_NE(wishes.place(plain, at(kThere, kMiB), kHere), there);
  wishes.forget(plain);
  wishes.forget(there + 1);
  wishes.forget(0);
  EXPECT_EQ(wishes.size(), 1u) << "only the default shape is left";
  EXPECT_TRUE(wishes.knows(0));
  EXPECT_GT(wishes.key_for(two), there + 1);
}

TEST(Wishes, NodesHaveSmallNumbers) {
  Wishes wishes;
  EXPECT_EQ(wishes.number_of(NodeId{}), 0u);
  const std::uint32_t there = wishes.number_of(kThere);
  EXPECT_NE(there, 0u);
  EXPECT_EQ(wishes.number_of(kElsewhere), there + 1);
  EXPECT_EQ(wishes.node(there), kThere);
  EXPECT_FALSE(wishes.node(0) || wishes.node(99));
}

}  // namespace
}  // namespace troupe::client::wishes_test
