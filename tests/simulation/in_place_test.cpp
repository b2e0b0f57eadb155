// Proves the rule for tasks that run where they are awaited, with workers that run tasks, hand
// them back and die: each task begins once, except after the death of its worker, and all tasks
// end.
#include "tests/simulation/in_place_world.hpp"

#include <gtest/gtest.h>

namespace troupe::client {
namespace {

constexpr std::uint64_t kSeeds = 300;

TEST(InPlaceSimulation, EachTaskIsBegunOnceAndEnds) {
  std::size_t here = 0, back = 0, there = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    InPlaceWorld world(seed);
    ASSERT_EQ(world.run(), "") << "seed " << seed;
    here += world.ran_here();
    back += world.came_back();
    there += world.ran_there();
  }
  EXPECT_GT(here, 20 * kSeeds);
  EXPECT_GT(back, kSeeds);
  EXPECT_GT(there, 20 * kSeeds);
}

/// Returns how many seeds it takes until a planted mistake breaks a promise.
std::uint64_t found_by(InPlaceWorld::Mutant mutant) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed)
    if (!InPlaceWorld(seed, mutant).run().empty()) return seed;
  return kSeeds + 1;
}

TEST(InPlaceSimulation, PlantedMistakesAreFound) {
  EXPECT_LE(found_by(InPlaceWorld::Mutant::claimed_is_dispatched), kSeeds / 10);
  EXPECT_LE(found_by(InPlaceWorld::Mutant::runs_what_is_elsewhere), kSeeds / 10);
  EXPECT_LE(found_by(InPlaceWorld::Mutant::hands_back_what_began), kSeeds / 10);
}

}  // namespace
}  // namespace troupe::client
