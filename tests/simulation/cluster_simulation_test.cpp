// Proves that whole clusters under seeded faults (cluster/cluster.hpp) keep every promise, that
// the schedules contain enough faults and rare paths, and that a planted bug is found. Run more
// of them with `./dev simulate`.
#include "tests/simulation/cluster/harness.hpp"

#include <gtest/gtest.h>
#include <cstdlib>

namespace troupe::sim::cluster {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kSeeds = 12;
#else
constexpr std::uint64_t kSeeds = 2'500;
#endif
constexpr std::uint64_t kParts = 4;  // so that each core runs some

class ClusterSchedules : public testing::TestWithParam<std::uint64_t> {};

TEST_P(ClusterSchedules, KeepEveryPromise) {
  const char* wanted = std::getenv("TROUPE_SIM_SEEDS");
  const char* first = std::getenv("TROUPE_SIM_FIRST");
  if (first == nullptr)
    first = std::getenv("TROUPE_SIM_CLUSTER_FIRST");  // CI: other seeds each day
  const std::uint64_t seeds = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : kSeeds;
  const std::uint64_t from = first != nullptr ? std::strtoull(first, nullptr, 10) : 101;
  const std::uint64_t begin = from + seeds * GetParam() / kParts;
  const Batch batch = run_batch(begin, from + seeds * (GetParam() + 1) / kParts - begin, {}, 3);
  std::printf("seeds from %llu: %s\n", static_cast<unsigned long long>(begin),
              batch.text().c_str());
  EXPECT_TRUE(batch.failures.empty()) << batch.text();
  EXPECT_EQ(batch.floor(), "");
}

INSTANTIATE_TEST_SUITE_P(Parts, ClusterSchedules, testing::Range<std::uint64_t>(0, kParts));

/// Seeds whose schedules take rare paths:
/// - 65, 80, 290: callers lose the way to an actor's living node and must learn another way.
/// - 78, 105: a lease is granted to a process of another node that has withdrawn its request.
/// - 90: an agent stands still, its actor's lease word is old, and the actor's next life serves.
/// - 152: an agent stands still for 14 s, and its actor must stop before its next life serves.
/// - 225: control's start of an actor is lost, and the node reports an earlier life of the actor.
/// - 1000087: a late request starts a worker for a job that is over.
/// - 1000195: the network loses bytes of a bulk transfer.
/// - 1000484: a killed actor is taken for alive.
/// - 1000499: workers that must end keep every CPU while they wait for the tasks they submitted.
/// - 1000531: a node reports the end of an earlier life of a killed actor to a later control.
/// - 1000572: the request of another node meets a dying worker.
/// - 1000779: a spawn waits at control while its job ends.
/// - 1002220, 1006010: a node takes an importer for the owner and asks it for missing bytes.
/// - 1003785: the node of an actor is cut off, so its actor must halt.
/// - 2300013: a node is told of a job's end before control has written the end to its disk.
/// - 25820937: a node is declared dead while control restarts, and it sleeps and wakes later.
TEST(ClusterSimulation, SeedsThatOnceFailedPass) {
  for (const std::uint64_t seed :
       {65,      78,      80,      90,      105,     152,     225,     290,     1000087, 1000195,
        1000779, 1000484, 1000499, 1000531, 1000572, 1002220, 1003785, 1006010, 2300013, 25820937})
    EXPECT_EQ(run_isolated(seed, {}).violation, "") << "seed " << seed;
}

/// Proves that the checks work: a cluster that loses one frame in twenty is found.
TEST(ClusterSimulation, TheCanaryIsFound) {
  Tuning canary;
  canary.canary = true;
  EXPECT_FALSE(run_batch(1, 5, canary, 1).failures.empty());
}

}  // namespace
}  // namespace troupe::sim::cluster
