// Tests the pool of slabs for units in use.
#include "troupe/train/params/internal/slab_pool.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace troupe::train::internal {
namespace {

struct Slab {
  std::int64_t size = 0;
  std::int64_t bytes() const noexcept { return size; }
};

struct Pool {
  int allocations = 0;
  SlabPool<Slab> slabs{[this](std::int64_t bytes) {
    ++allocations;
    return Slab{bytes};
  }};
  std::vector<Slab> used;
  std::int64_t most = 0;  // the most in use at one time

  void take(std::int64_t bytes) {
    used.push_back(slabs.take(bytes));
    std::int64_t sum = 0;
    for (const Slab& slab : used) sum += slab.size;
    most = std::max(most, sum);
  }
  void give_back(std::int64_t bytes) {
    const auto slab =
        std::find_if(used.begin(), used.end(), [=](const Slab& s) { return s.size == bytes; });
    slabs.give_back(*slab);
    used.erase(slab);
  }
};

/// Uses units two at a time, as passes visit layers: a large one, middle ones, a small one.
void walk(Pool& pool) {
  const std::int64_t units[] = {900, 300, 300, 300, 50};
  pool.take(units[0]);
  for (std::size_t i = 1; i < std::size(units); ++i) {
    pool.take(units[i]);
    pool.give_back(units[i - 1]);
  }
  pool.give_back(units[4]);
}

TEST(SlabPool, HoldsNoMoreThanWasOnceInUse) {
  Pool pool;
  for (int i = 0; i < 3; ++i) {
    walk(pool);
    EXPECT_EQ(pool.slabs.peak(), pool.most);
    EXPECT_LE(pool.slabs.held(), pool.most);
  }
  EXPECT_EQ(pool.most, 1200);
}

TEST(SlabPool, KeepsSlabsOfSeveralSizesWhereThePeakHasRoom) {
  Pool pool;
  pool.take(1250);  // reaches the peak
  pool.give_back(1250);
  for (int step = 0; step < 5; ++step)
    for (const std::int64_t bytes : {900, 300, 50}) {
      pool.take(bytes);
      pool.give_back(bytes);
    }
  EXPECT_EQ(pool.allocations, 1 + 3) << "each size once";
  EXPECT_EQ(pool.slabs.held(), 900 + 300 + 50);
  pool.take(100);  // the slab that was idle longest makes room
  EXPECT_EQ(pool.slabs.held(), 100 + 300 + 50);
  EXPECT_EQ(pool.slabs.peak(), 1250);
}

}  // namespace
}  // namespace troupe::train::internal
