// Proves replicas over 12,000 schedules: nothing is lost while fewer nodes die at a time than
// there are copies, and nothing is left at the end. The same schedules must find planted
// mistakes.
#include "kernel/hooks.hpp"
#include "kernel/seeds.hpp"
#include "replicas_world.hpp"

#include <gtest/gtest.h>

namespace troupe::simulation {
namespace {

constexpr std::uint64_t kMostOfReplicas = 12'000, kMostOfNames = 3'000;

struct NamedReplicasWorld : ReplicasWorld {
  explicit NamedReplicasWorld(std::uint64_t seed) : ReplicasWorld(seed, true) {}
};

TEST(ReplicasSimulation, NothingIsLostAndNothingIsLeft) {
  ReplicasWorld::Seen total;
  const sim::Seeds seeds(kMostOfReplicas);
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    ReplicasWorld world(seed);
    world.run();
    ASSERT_EQ(world.broken(), "") << "seed " << seed;
    const ReplicasWorld::Seen& seen = world.seen();
    total.puts += seen.puts, total.refused += seen.refused, total.found += seen.found;
    total.lent += seen.lent, total.deaths += seen.deaths, total.orphans += seen.orphans;
    total.restored += seen.restored, total.excused += seen.excused;
    total.repaired += seen.repaired;
  }
  const double share = static_cast<double>(kMostOfReplicas) / static_cast<double>(seeds.count);
  const auto expect_more = [share](std::uint64_t seen, double than, const char* what) {
    RecordProperty(what, std::to_string(seen));
    EXPECT_GT(static_cast<double>(seen) * share, than) << what;  // `than` is for all seeds
  };
  expect_more(total.puts, 50'000, "puts");
  expect_more(total.refused, 1'000, "puts without copies");
  expect_more(total.deaths, 5'000, "deaths");
  expect_more(total.found, 150, "values of lost owners");
  expect_more(total.lent, 50, "bytes of own copies");
  expect_more(total.restored, 500, "copies that were made again");
  expect_more(total.repaired, 500, "of lost owners' objects");
  expect_more(total.orphans, 5'000, "copies at the end");
}

TEST(ReplicasSimulation, SeedsThatOnceFailedPass) {
  // Rare paths: messages of a dead node reach the owner, and a ref is dropped while its bytes
  // arrive and comes back.
  for (const std::uint64_t seed : {5001541, 5035951, 8036878}) {
    ReplicasWorld world(seed);
    world.run();
    EXPECT_EQ(world.broken(), "") << "seed " << seed;
  }
}

TEST(ReplicasSimulation, WhatHasANameIsHeldByItAloneUntilItIsForgotten) {
  ReplicasWorld::Seen total;
  const sim::Seeds seeds(kMostOfNames);
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    NamedReplicasWorld world(seed);
    world.run();
    ASSERT_EQ(world.broken(), "") << "seed " << seed;
    total.named += world.seen().named, total.by_name += world.seen().by_name;
    total.orphans += world.seen().orphans;
  }
  const double share = static_cast<double>(kMostOfNames) / static_cast<double>(seeds.count);
  EXPECT_GT(static_cast<double>(total.named) * share, 300);
  EXPECT_GT(static_cast<double>(total.by_name) * share, 2'000);
  EXPECT_GT(static_cast<double>(total.orphans) * share, 500);
}

class PlantedInReplicas : public testing::TestWithParam<const char*> {};

TEST_P(PlantedInReplicas, IsFound) {
  sim::MutantScope bug(GetParam());
  const std::uint64_t seed = sim::first_broken<ReplicasWorld>(kMostOfReplicas);
  EXPECT_TRUE(bug.reached());
  EXPECT_NE(seed, 0u);
  RecordProperty("seed", std::to_string(seed));
}

class PlantedInNames : public testing::TestWithParam<const char*> {};

TEST_P(PlantedInNames, IsFound) {
  sim::MutantScope bug(GetParam());
  const std::uint64_t seed = sim::first_broken<NamedReplicasWorld>(kMostOfNames);
  EXPECT_TRUE(bug.reached());
  EXPECT_NE(seed, 0u);
  RecordProperty("seed", std::to_string(seed));
}

INSTANTIATE_TEST_SUITE_P(ReplicasSimulation, PlantedInNames,
                         testing::Values("replicas.names_hold_nothing", "named.keeps_forgotten"),
                         [](const auto& planted) {
                           std::string name = planted.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

INSTANTIATE_TEST_SUITE_P(ReplicasSimulation, PlantedInReplicas,
                         testing::Values("replicas.answers_early", "replicas.copies_stay",
                                         "replicas.believes_the_dead", "replicas.stays_alone",
                                         "references.forgets_copied_in_flight"),
                         [](const auto& planted) {
                           std::string name = planted.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

}  // namespace
}  // namespace troupe::simulation
