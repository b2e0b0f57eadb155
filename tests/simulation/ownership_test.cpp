// Proves the reference protocol of one node over 24,000 schedules: nothing in use is freed,
// nothing is kept for ever, and every await is answered once. The same schedules must find
// planted mistakes.
#include "kernel/seeds.hpp"
#include "ownership_world.hpp"

#include <gtest/gtest.h>

namespace troupe::simulation {
namespace {

TEST(OwnershipSimulation, HoldsInEverySchedule) {
  std::uint64_t frees = 0;
  const sim::Seeds seeds(24'000);
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    Ownership world(seed, Mutant::none);
    world.run();
    ASSERT_EQ(world.broken(), "") << "seed " << seed;
    frees += world.frees();
  }
  EXPECT_GT(frees, 2 * seeds.count) << "the schedules do too little";
}

std::uint64_t found_at(Mutant mutant) {
  return sim::first_broken<Ownership>(24'000, mutant);
}

TEST(OwnershipSimulation, FindsPlantedMistakes) {
  EXPECT_NE(found_at(Mutant::no_ageing), 0u);
  EXPECT_NE(found_at(Mutant::hold_after_message), 0u);
  EXPECT_NE(found_at(Mutant::death_keeps_counts), 0u);
  EXPECT_NE(found_at(Mutant::surplus_kept), 0u);
  EXPECT_NE(found_at(Mutant::settles_over_unread), 0u);
}

}  // namespace
}  // namespace troupe::simulation
