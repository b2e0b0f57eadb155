// The reference protocol between nodes over 12,000 schedules: nothing in use is freed, nothing is
// kept for ever, every await is answered, whoever dies; and the same schedules find planted
// mistakes.
#include "ownership_cluster.hpp"
#include "kernel/hooks.hpp"
#include "kernel/seeds.hpp"

#include <gtest/gtest.h>

namespace troupe::simulation {
namespace {

constexpr std::uint64_t kMost = 12'000, kSeeds = sim::scaled(kMost);

TEST(OwnershipClusterSimulation, HoldsInEverySchedule) {
  OwnershipCluster::Seen total;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    OwnershipCluster world(seed);
    world.run();
    ASSERT_EQ(world.broken(), "") << "seed " << seed;
    total += world.seen();
  }
  constexpr std::uint64_t share = kMost / kSeeds;  // the figures are those of all
  EXPECT_GT(total.frees * share, 50'000u) << "the schedules do too little";
  EXPECT_GT(total.pulls * share, 20'000u);
  EXPECT_GT(total.passed_on * share, 5'000u) << "by a node that does not own what it passes on";
  EXPECT_GT(total.came_home * share, 20'000u);
  EXPECT_GT(total.nested_abroad * share, 10'000u);
  EXPECT_GT(total.lost * share, 1'000u);
  EXPECT_GT(total.excused * share, 50u) << "deaths in the middle of passing on";
  EXPECT_TRUE(total.cut_off > 0 || share > 1) << "losses by them, which are rare";
  EXPECT_GT(total.missed * share, 300u) << "values to which others were forwarded";
  EXPECT_GT(total.rebuilt * share, 100u);
  EXPECT_GT(total.entrusted * share, 15u) << "by a process that took the call over";
}

class Planted : public testing::TestWithParam<const char*> {};

TEST_P(Planted, IsFound) {
  const std::string name = std::string("owners.") + GetParam();
  sim::MutantScope bug(name);
  std::string broken;
  std::uint64_t seed = 0;
  while (broken.empty() && ++seed <= kMost) {
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
                                         "unsent_stays", "keeps_lost_value", "asks_the_dead",
                                         "entrusts_uncounted", "forgets_needed_calls",
                                         "orphans_once"),
                         [](const auto& planted) { return std::string(planted.param); });

}  // namespace
}  // namespace troupe::simulation
