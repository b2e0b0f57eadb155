// The reference protocol between nodes over 12,000 schedules: nothing in use is freed, nothing is
// kept for ever, every await is answered, whoever dies; and the same schedules find planted
// mistakes.
#include "ownership_cluster.hpp"
#include "kernel/hooks.hpp"

#include <gtest/gtest.h>

namespace troupe::simulation {
namespace {

constexpr std::uint64_t kSeeds = 12'000;

TEST(OwnershipClusterSimulation, HoldsInEverySchedule) {
  OwnershipCluster::Seen total;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    OwnershipCluster world(seed);
    world.run();
    ASSERT_EQ(world.broken(), "") << "seed " << seed;
    total += world.seen();
  }
  EXPECT_GT(total.frees, 50'000u) << "the schedules do too little";
  EXPECT_GT(total.pulls, 20'000u);
  EXPECT_GT(total.passed_on, 5'000u) << "by a node that does not own what it passes on";
  EXPECT_GT(total.came_home, 20'000u);
  EXPECT_GT(total.nested_abroad, 10'000u);
  EXPECT_GT(total.lost, 1'000u);
  EXPECT_GT(total.excused, 50u) << "deaths in the middle of passing on";
  EXPECT_GT(total.cut_off, 0u) << "losses by them";
  EXPECT_GT(total.missed, 300u) << "values to which others were forwarded";
  EXPECT_GT(total.rebuilt, 100u);
}

class Planted : public testing::TestWithParam<const char*> {};

TEST_P(Planted, IsFound) {
  const std::string name = std::string("owners.") + GetParam();
  sim::MutantScope bug(name);
  std::string broken;
  std::uint64_t seed = 0;
  while (broken.empty() && ++seed <= kSeeds) {
    OwnershipCluster world(seed);
    world.run();
    broken = world.broken();
  }
  EXPECT_TRUE(bug.reached());
  EXPECT_NE(broken, "");
  RecordProperty("seed", std::to_string(seed));
}

INSTANTIATE_TEST_SUITE_P(OwnershipClusterSimulation, Planted,
                         testing::Values("counts_the_owner", "keeps_surplus",
                                         "lets_go_at_departure", "late_bytes_stay",
                                         "waits_for_dead_owner", "says_lost_of_borrowed",
                                         "unsent_stays", "keeps_lost_value", "asks_the_dead"),
                         [](const auto& planted) { return std::string(planted.param); });

}  // namespace
}  // namespace troupe::simulation
