// Tests the allocator. Blocks never overlap, freed neighbours are joined, the block freed last is
// used first, and random work leaves bounded holes. After any steps it agrees with a map of the
// holes.
#include "troupe/objectstore/internal/allocator.hpp"
#include "troupe/runtime/base/random.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <algorithm>
#include <map>

namespace troupe::objectstore::internal {
namespace {

constexpr std::uint64_t kExtent = 1 << 20;

TEST(Allocator, JoinsToOneBlockWhenAllIsFreed) {
  Allocator space;
  space.add_extent(0, kExtent);
  std::vector<Allocator::BlockId> blocks;
  for (Allocator::BlockId b = space.allocate(5000); b != Allocator::kNone; b = space.allocate(5000))
    blocks.push_back(b);
  EXPECT_EQ(blocks.size(), kExtent / 5056);
  for (std::size_t i = 0; i < blocks.size(); i += 2) space.free(blocks[i]);
  EXPECT_GT(space.totals().free_blocks, 100u);
  for (std::size_t i = 1; i < blocks.size(); i += 2) space.free(blocks[i]);
  EXPECT_EQ(space.totals().free_blocks, 1u);
  EXPECT_EQ(space.largest_free(), kExtent);
  EXPECT_EQ(space.totals().used, 0u);
}

TEST(Allocator, AWholeExtentFitsExactly) {
  Allocator space;
  const std::uint64_t odd = 12'345'664;  // lies between two classes
  space.add_extent(7, odd);
  const Allocator::BlockId block = space.allocate(odd);
  ASSERT_NE(block, Allocator::kNone);
  EXPECT_EQ(space.at(block).extent, 7u);
  EXPECT_EQ(space.allocate(1), Allocator::kNone);
  EXPECT_EQ(space.largest_free(), 0u);
}

TEST(Allocator, WhatWasJustFreedIsUsedFirst) {
  Allocator space;
  space.add_extent(0, kExtent);
  const Allocator::BlockId first = space.allocate(8192);
  space.allocate(8192);
  const std::uint64_t offset = space.at(first).offset;
  space.free(first);
  EXPECT_EQ(space.at(space.allocate(8192)).offset, offset);
}

TEST(Allocator, RemovesOnlyEmptyExtents) {
  Allocator space;
  space.add_extent(0, kExtent);
  space.add_extent(1, kExtent);
  const Allocator::BlockId used = space.allocate(64);
  ASSERT_EQ(space.whole_extents().size(), 1u);
  EXPECT_FALSE(space.remove_extent(used));
  EXPECT_TRUE(space.remove_extent(space.whole_extents()[0]));
  EXPECT_EQ(space.totals().capacity, kExtent);
}

class AllocatorSeeds : public testing::TestWithParam<std::uint64_t> {};

TEST_P(AllocatorSeeds, RandomWorkNeverOverlapsAndLosesNothing) {
  Random random(GetParam());
  Allocator space;
  space.add_extent(0, kExtent);
  space.add_extent(1, 4 * kExtent);
  using Place = std::pair<std::uint32_t, std::uint64_t>;
  std::map<Place, std::uint64_t> taken;  // (extent, offset) -> end
  std::vector<Allocator::BlockId> live;
  std::uint64_t refused_at = ~std::uint64_t{0};
  for (int step = 0; step < 4000; ++step) {
    if (live.empty() || random.chance(0.55)) {
      const std::uint64_t wanted = 1 + random.below(std::uint64_t{1} << (6 + random.below(13)));
      const Allocator::BlockId id = space.allocate(wanted);
      if (id == Allocator::kNone) {
        if (wanted <= 4096) refused_at = std::min(refused_at, space.totals().used);
        continue;
      }
      const Allocator::Block& block = space.at(id);
      ASSERT_GE(block.bytes, wanted);
      ASSERT_LT(block.bytes, wanted + 64);
      ASSERT_EQ(block.offset % 64, 0u);
      ASSERT_LE(block.offset + block.bytes, block.extent == 0 ? kExtent : 4 * kExtent);
      const auto next = taken.lower_bound({block.extent, block.offset});
      if (next != taken.end() && next->first.first == block.extent) {
        ASSERT_GE(next->first.second, block.offset + block.bytes);
      }
      if (next != taken.begin() && std::prev(next)->first.first == block.extent) {
        ASSERT_LE(std::prev(next)->second, block.offset);
      }
      taken[{block.extent, block.offset}] = block.offset + block.bytes;
      live.push_back(id);
    } else {
      std::swap(live[random.below(live.size())], live.back());
      taken.erase({space.at(live.back()).extent, space.at(live.back()).offset});
      space.free(live.back());
      live.pop_back();
    }
  }
  EXPECT_GT(refused_at, 4 * kExtent) << "4 KiB were refused while a fifth was still free";
  for (const Allocator::BlockId id : live) space.free(id);
  EXPECT_EQ(space.totals().free_blocks, 2u);
  EXPECT_EQ(space.totals().used, 0u);
}
INSTANTIATE_TEST_SUITE_P(Seeds, AllocatorSeeds, testing::Range<std::uint64_t>(1, 9));

/// The state that the allocator should be in: the sizes of extents, and the blocks taken from
/// them.
struct Holes {
  using Place = std::pair<std::uint32_t, std::uint64_t>;
  std::map<std::uint32_t, std::uint64_t> extents;
  std::map<Place, std::uint64_t> taken;  // (extent, offset) -> bytes

  std::vector<std::uint64_t> sizes() const {
    std::vector<std::uint64_t> found;
    for (const auto& [extent, size] : extents) {
      std::uint64_t end = 0;
      for (auto at = taken.lower_bound({extent, 0}); at != taken.end() && at->first.first == extent;
           ++at) {
        if (at->first.second > end) found.push_back(at->first.second - end);
        end = at->first.second + at->second;
      }
      if (end < size) found.push_back(size - end);
    }
    return found;
  }
  bool is_free(const Allocator::Block& block) const {
    const auto extent = extents.find(block.extent);
    if (extent == extents.end() || block.offset + block.bytes > extent->second) return false;
    const auto next = taken.lower_bound({block.extent, block.offset});
    if (next != taken.end() && next->first.first == block.extent &&
        next->first.second < block.offset + block.bytes)
      return false;
    return next == taken.begin() || std::prev(next)->first.first != block.extent ||
           std::prev(next)->first.second + std::prev(next)->second <= block.offset;
  }
  bool is_empty(std::uint32_t extent) const {
    const auto at = taken.lower_bound({extent, 0});
    return at == taken.end() || at->first.first != extent;
  }
};

void expect_same(const Allocator& space, const Holes& model) {
  const std::vector<std::uint64_t> holes = model.sizes();
  std::uint64_t used = 0, capacity = 0;
  for (const auto& [place, bytes] : model.taken) used += bytes;
  for (const auto& [extent, bytes] : model.extents) capacity += bytes;
  RC_ASSERT(space.totals().used == used);
  RC_ASSERT(space.totals().capacity == capacity);
  RC_ASSERT(space.totals().used_blocks == model.taken.size());
  RC_ASSERT(space.totals().free_blocks == holes.size());  // neighbours are joined at once
  RC_ASSERT(space.largest_free() ==
            (holes.empty() ? 0 : *std::max_element(holes.begin(), holes.end())));
}

TEST(AllocatorModel, IsAsAMapOfHolesInAnyOrderOfSteps) {
  EXPECT_TRUE(rc::check([](const std::vector<std::uint32_t>& steps) {
    Allocator space;
    Holes model;
    std::vector<Allocator::BlockId> live;
    std::uint32_t next_extent = 0;
    for (const std::uint32_t step : steps) {
      const std::uint32_t value = step / 8;
      if (step % 8 == 0 && model.extents.size() < 4) {
        const std::uint64_t size = std::uint64_t{64} * (1 + value % 300);
        space.add_extent(next_extent, size);
        model.extents[next_extent++] = size;
      } else if (step % 8 == 1) {
        const auto whole = space.whole_extents();
        RC_ASSERT(static_cast<std::size_t>(std::count_if(
                      model.extents.begin(), model.extents.end(),
                      [&](const auto& one) { return model.is_empty(one.first); })) == whole.size());
        if (whole.empty()) continue;
        const Allocator::BlockId block = whole[value % whole.size()];
        const std::uint32_t extent = space.at(block).extent;
        RC_ASSERT(model.is_empty(extent));
        RC_ASSERT(space.remove_extent(block));
        model.extents.erase(extent);
      } else if (step % 8 < 4 && !live.empty()) {
        std::swap(live[value % live.size()], live.back());
        const Allocator::Block& block = space.at(live.back());
        RC_ASSERT(model.taken.erase({block.extent, block.offset}) == 1u);
        space.free(live.back());
        live.pop_back();
      } else {
        const std::uint64_t wanted = 1 + value % 5'000, units = (wanted + 63) / 64;
        const std::uint64_t largest = space.largest_free();
        const Allocator::BlockId id = space.allocate(wanted);
        if (id == Allocator::kNone) {  // a block of the next class always fits
          RC_ASSERT(largest / 64 <= units + units / 32);
          continue;
        }
        const Allocator::Block& block = space.at(id);
        RC_ASSERT(block.bytes == 64 * units && block.offset % 64 == 0);
        RC_ASSERT(model.is_free(block));
        model.taken[{block.extent, block.offset}] = block.bytes;
        live.push_back(id);
      }
      expect_same(space, model);
    }
  }));
}

}  // namespace
}  // namespace troupe::objectstore::internal
