// Proves the supervisor of gangs under faults: gangs of the sizes that they may have, on nodes that
// stay, from the newest checkpoint, with every step reported once. The same schedules must find
// planted bugs.
#include "tests/simulation/gang_world.hpp"
#include "tests/simulation/kernel/hooks.hpp"
#include "tests/simulation/kernel/seeds.hpp"

#include <gtest/gtest.h>

namespace troupe::train::internal {
namespace {

constexpr std::uint64_t kSeeds = 4'000;

TEST(GangSimulation, EachRunEndsWithEveryStepReportedOnce) {
  GangWorld::Seen total;
  sim::Seeds seeds(kSeeds);
  if (const auto only = sim::detail::number_from_environment("TROUPE_SIM_SEED", 0); only != 0)
    seeds.first = only, seeds.count = 1;
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    GangWorld world(seed);
    world.run();
    ASSERT_EQ(world.broken(), "") << "seed " << seed;
    const GangWorld::Seen& seen = world.seen();
    total.gangs += seen.gangs, total.restarts += seen.restarts, total.moves += seen.moves;
    total.growths += seen.growths, total.left += seen.left, total.commits += seen.commits;
    total.removed += seen.removed, total.late += seen.late, total.drivers += seen.drivers;
    total.failed_saves += seen.failed_saves, total.hidden += seen.hidden;
    total.gathers += seen.gathers;
  }
  if (seeds.count < 400) return;  // a replay shows nothing about the load
  const auto expect_more = [&seeds](std::uint64_t seen, double each, const char* what) {
    RecordProperty(what, std::to_string(seen));
    EXPECT_GT(static_cast<double>(seen), each * static_cast<double>(seeds.count)) << what;
  };
  expect_more(total.restarts, 1, "restarts");
  expect_more(total.moves, 0.1, "moves");
  expect_more(total.growths, 0.05, "growths");
  expect_more(total.left, 0.05, "drained nodes that are left");
  expect_more(total.commits, 1, "commits");
  expect_more(total.removed, 0.3, "removed checkpoints");
  expect_more(total.late, 0.3, "events of older gangs");
  expect_more(total.drivers, 0.1, "killed drivers");
  expect_more(total.failed_saves, 0.05, "saves that fail");
  expect_more(total.hidden, 0.2, "starts with CPUs that are not reported as free");
  expect_more(total.gathers, 0.01, "gangs that were not complete in time");
}

/// Returns how many seeds it takes until a planted bug breaks a promise; 0: more than there are.
std::uint64_t found_by(const char* mutant) {
  return sim::seeds_to_find(mutant, kSeeds, [](std::uint64_t seed) {
    GangWorld world(seed);
    world.run();
    sim::Report report;
    report.violation = world.broken();
    return report;
  });
}

TEST(GangSimulation, PlantedBugsAreFound) {
  for (const char* mutant : {"gang.older_event", "gang.early_commit", "gang.draining_node",
                             "gang.held_is_taken", "gang.flaps", "gang.below_least",
                             "gang.move_is_restart", "gang.best_removed", "gang.reported_twice"})
    EXPECT_NE(found_by(mutant), 0) << mutant;
}

}  // namespace
}  // namespace troupe::train::internal
