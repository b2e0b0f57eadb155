// Tests the order in which squares of gradients are added, and which of them count.
#include "troupe/train/optimizers/norm.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

namespace troupe::train {
namespace {

using internal::add_units;
using internal::counted_ranges;
using internal::CountedRange;
using internal::sums_of_units;

/// Returns an index of two units: one with replicated and sharded tensors in turn, one with a
/// sharded tensor only.
Index mixed_index(int dp = 1) {
  Index index;
  const int first = index.begin_unit("first");
  const TensorShard shard{.axis = 0, .parts = 2, .index = 1};
  index.add(first, "norm", {100}, Group::no_decay);           // at element 0
  index.add(first, "up", {2 * 1000}, Group::decay, shard);    // at 128
  index.add(first, "bias", {64}, Group::no_decay);            // at 1152
  index.add(first, "down", {2 * 3000}, Group::decay, shard);  // at 1216
  const int second = index.begin_unit("second");
  index.add(second, "head", {2 * 1024}, Group::decay, shard);
  index.seal({.dp = dp});
  return index;
}

TEST(CountedRanges, AreTheWholeSlabOnTpIndexZero) {
  const Index index = mixed_index();
  const std::int64_t size = index.units()[0].size;
  EXPECT_EQ(size, 5 * kChunk);
  EXPECT_EQ(counted_ranges(index, 0, {0, size}, 0), (std::vector<CountedRange>{{{0, size}, 0}}));
}

TEST(CountedRanges, LeaveReplicatedTensorsOutOnOthersAndKeepChunksApart) {
  const Index index = mixed_index();
  const std::vector<CountedRange> expected = {
      {{100, 924}, 0}, {{1024, 128}, 1}, {{1216, 832}, 1}, {{2048, 3072}, 2}};
  EXPECT_EQ(counted_ranges(index, 0, {0, 5 * kChunk}, 1), expected);
  EXPECT_EQ(counted_ranges(index, 1, {0, kChunk}, 1),
            (std::vector<CountedRange>{{{0, kChunk}, 0}}));
}

// A chunk has the same ranges, whichever rank owns it.
TEST(CountedRanges, OfOwnersAreThoseOfTheWhole) {
  const Index index = mixed_index(5);
  std::vector<CountedRange> of_owners;
  for (int owner = 0; owner < 5; ++owner)
    for (CountedRange each : counted_ranges(index, 0, index.owned(0, owner), 1)) {
      EXPECT_LE(each.range.end(), kChunk);
      each.range.first += owner * kChunk;
      each.chunk += owner;
      of_owners.push_back(each);
    }
  std::int64_t counted = 0, whole = 0;
  for (const CountedRange& each : of_owners) {
    EXPECT_EQ(each.range.first / kChunk, each.chunk);
    counted += each.range.count;
  }
  for (const CountedRange& each : counted_ranges(index, 0, {0, 5 * kChunk}, 1))
    whole += each.range.count;
  EXPECT_EQ(counted, whole);
  EXPECT_EQ(counted, 5 * kChunk - 164);
}

TEST(Squares, AreAddedByUnitAndChunkWhoeverOwnsThem) {
  const Index two = mixed_index(2);  // units of 6 and 2 chunks
  // The sum of these numbers depends on the order.
  const std::vector<double> first = {1e16, 1, 1, -1e16, 3, 1}, second = {1e16, 1};
  const std::vector<double> whole = {1e16, 1, 1, -1e16, 3, 1, 1e16, 1};
  const std::vector<double> of_owners = {1e16, 1, 1, 1e16, -1e16, 3, 1, 1};
  const std::vector<double> expected = {std::accumulate(first.begin(), first.end(), 0.0),
                                        std::accumulate(second.begin(), second.end(), 0.0)};
  EXPECT_EQ(sums_of_units(two, 1, whole), expected);
  EXPECT_EQ(sums_of_units(two, 2, of_owners), expected);
  EXPECT_NE(expected[0], 6.0) << "the order shows";
}

TEST(Squares, OfUnitsAreAddedInTheOrderOfUnitAndTpIndexWhateverStageHasThem) {
  // Unit u on tp index t has the value 10 u + t.
  const double big = 1e16;
  const std::vector<double> one_stage = {big, 1, -big, 1, 1, 3};  // tp 0: three units, then tp 1
  const double expected = ((((big + 1) + 1) + 1) + -big) + 3;
  EXPECT_EQ(add_units(one_stage, 3), expected);
  const std::vector<double> stages = {big, 0, -big, 1, 0, 3, 0, 1, 0, 0, 1, 0};
  EXPECT_EQ(add_units(stages, 3), expected) << "the second stage has the unit in the middle";
  const std::vector<double> other_order = {big, -big, 1, 1, 3, 1};
  EXPECT_NE(add_units(other_order, 3), expected) << "the order shows";
}

}  // namespace
}  // namespace troupe::train
