// Proves the reference protocol between nodes over 12,000 schedules: nothing in use is freed,
// nothing is kept for ever, and every await is answered, whichever process or node dies. The same
// schedules must find planted mistakes.
#include "ownership_cluster.hpp"
#include "kernel/hooks.hpp"
#include "kernel/seeds.hpp"

#include <gtest/gtest.h>

namespace troupe::simulation {
namespace {

constexpr std::uint64_t kMost = 12'000;

TEST(OwnershipClusterSimulation, HoldsInEverySchedule) {
  OwnershipCluster::Seen total;
  const sim::Seeds seeds(kMost);
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    OwnershipCluster world(seed);
    world.run();
    ASSERT_EQ(world.broken(), "") << "seed " << seed;
    total += world.seen();
  }
  const double share = static_cast<double>(kMost) / static_cast<double>(seeds.count);
  const auto expect_more = [share](std::uint64_t seen, double than, const char* what) {
    EXPECT_GT(static_cast<double>(seen) * share, than) << what;  // `than` is for kMost seeds
  };
  expect_more(total.frees, 50'000, "the schedules do too little");
  expect_more(total.pulls, 20'000, "pulls");
  expect_more(total.passed_on, 5'000, "by a node that does not own what it passes on");
  expect_more(total.came_home, 20'000, "refs that came home");
  expect_more(total.nested_remote, 10'000, "refs in values at other nodes");
  expect_more(total.lost, 1'000, "losses");
  expect_more(total.excused, 50, "deaths in the middle of passing on");
  EXPECT_TRUE(total.cut_off > 0 || share > 1) << "losses by them, which are rare";
  expect_more(total.missed, 300, "values to which others were forwarded");
  expect_more(total.rebuilt, 100, "values that were computed again");
  expect_more(total.entrusted, 15, "by a process that took the call over");
}

class Planted : public testing::TestWithParam<const char*> {};

TEST_P(Planted, IsFound) {
  const std::string name = std::string("references.") + GetParam();
  sim::MutantScope bug(name);
  const std::uint64_t seed = sim::first_broken<OwnershipCluster>(kMost);
  EXPECT_TRUE(bug.reached());
  EXPECT_NE(seed, 0u);
  RecordProperty("seed", std::to_string(seed));
}

INSTANTIATE_TEST_SUITE_P(OwnershipClusterSimulation, Planted,
                         testing::Values("counts_the_owner", "keeps_surplus", "lets_go_at_export",
                                         "late_bytes_stay", "waits_for_dead_owner",
                                         "says_lost_of_imported", "unsent_stays",
                                         "keeps_lost_value", "asks_the_dead", "entrusts_uncounted",
                                         "forgets_needed_calls", "orphans_once"),
                         [](const auto& planted) { return std::string(planted.param); });

}  // namespace
}  // namespace troupe::simulation
