// Tests gangs over nodes on real clusters: the bits of one node, killed ranks and nodes, and what
// is told of them.
#include "tests/eventually.hpp"
#include "tests/process_train/nodes.hpp"
#include "troupe/train/train.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace fit_over_nodes {

using namespace std::chrono_literals;
namespace train = troupe::train;

struct Plan {
  long die_at = 0;
  bool whole_node = false;
  int rank = -1;  ///< that dies; -1: the last
  int pause_ms = 0;
};

/// Twenty steps whose sums depend on the order in which ranks are added.
void sums(train::Worker& w, Plan plan) {
  std::vector<float> weights(3000, 1.0f);
  w.restore(weights);
  while (w.step() < 20) {
    w.next_step();
    std::this_thread::sleep_for(std::chrono::milliseconds(plan.pause_ms));
    const int rank = plan.rank < 0 ? w.world() - 1 : plan.rank;
    if (w.step() == plan.die_at && w.rank() == rank && w.incarnation() == 0)
      ::kill(plan.whole_node ? agent_of_this_node() : ::getpid(), SIGKILL);
    std::vector<float> slope(weights.size());
    for (std::size_t i = 0; i < slope.size(); ++i)
      slope[i] = weights[i] / static_cast<float>(3 * w.rank() + static_cast<int>(i % 7) + 1);
    w.all_reduce_mean(slope);
    for (std::size_t i = 0; i < slope.size(); ++i) weights[i] -= 0.1f * slope[i];
    w.report({.step = w.step(), .loss = weights[0]});
    if (w.wants_checkpoint()) w.checkpoint(weights);
  }
}

struct FitOverNodes : testing::Test {
  troupe::Session session{{.cpus = 2, .nodes = 3}};
  troupe::Context ctx = session.context();
  std::vector<train::Gang> gangs;

  void SetUp() override {
    ASSERT_TRUE(eventually([this] { return ctx.cluster().nodes.size() == 3; }));
  }
  train::Fit fit(train::FitOptions options, const Plan& plan = {}) {
    gangs.clear();
    options.run.every = 5;
    options.on_gang = [this](const train::Gang& gang) { gangs.push_back(gang); };
    return train::fit<sums>(ctx, options, plan);
  }
  static std::vector<std::string> nodes_of(const train::Gang& gang) {
    std::vector<std::string> nodes;
    for (const train::Gang::Rank& rank : gang.ranks) nodes.push_back(rank.node);
    return nodes;
  }
};

TEST_F(FitOverNodes, NodesHaveAnAddressForEachOther) {
  for (const troupe::NodeInfo& node : ctx.cluster().nodes) {
    EXPECT_EQ(node.address, "127.0.0.1");
    EXPECT_FALSE(node.draining || node.suspect);
  }
}

TEST_F(FitOverNodes, TheBitsAreThoseOfOneNode) {
  for (const int workers : {3, 5}) {
    const train::Fit one = fit({.workers = workers});
    const std::vector<std::string> here = nodes_of(gangs.at(0));
    EXPECT_EQ(std::set(here.begin(), here.end()).size(), 1U);
    const train::Fit spread = fit({.workers = workers, .placement = troupe::Placement::spread});
    ASSERT_EQ(gangs.size(), 1U);
    const std::vector<std::string> nodes = nodes_of(gangs[0]);
    EXPECT_EQ(std::set(nodes.begin(), nodes.end()).size(), 3U);
    EXPECT_EQ(spread.latest_checkpoint().step, 20);
    EXPECT_EQ(spread.latest_checkpoint().hash, one.latest_checkpoint().hash);
    EXPECT_EQ(spread.history().size(), 20U);
  }
}

TEST_F(FitOverNodes, CpusOfSeveralNodesMakeAGang) {
  const train::Fit run = fit({.workers = 5, .cpus_per_worker = 1});
  ASSERT_EQ(gangs.size(), 1U);
  const std::vector<std::string> nodes = nodes_of(gangs[0]);
  EXPECT_EQ(std::set(nodes.begin(), nodes.end()).size(), 3U);
  EXPECT_EQ(nodes[0], nodes[1]);
  EXPECT_EQ(run.last().step, 20);
}

TEST_F(FitOverNodes, AKilledRankOrNodeIsARestartWithTheSameBits) {
  const train::FitOptions options{
      .workers = 3, .max_restarts = 2, .placement = troupe::Placement::spread};
  const train::Fit calm = fit(options);
  for (const bool whole_node : {false, true}) {
    const train::Fit run = fit(options, {.die_at = 12, .whole_node = whole_node});
    EXPECT_EQ(run.restarts(), 1) << whole_node;
    EXPECT_EQ(run.history().size(), 20U);
    EXPECT_EQ(run.latest_checkpoint().hash, calm.latest_checkpoint().hash);
    ASSERT_EQ(gangs.size(), 2U);
    // A rank may go on for some steps after its agent has gone.
    EXPECT_GE(gangs[1].step, 10);
    EXPECT_EQ(gangs[1].ranks.size(), 3U);
  }
}

/// An actor that keeps CPUs.
struct Holder {
  int hold() { return 0; }
};

TEST_F(FitOverNodes, WithoutAFolderTheCheckpointsOfALostNodeHaveACopyAtTheDriver) {
  auto holder =
      ctx.with({.cpus = 2, .placement = troupe::Placement::on(ctx.node())}).spawn<Holder>();
  ctx.get(holder.call<&Holder::hold>());
  const train::FitOptions options{.workers = 2,
                                  .max_restarts = 1,
                                  .cpus_per_worker = 1,
                                  .placement = troupe::Placement::spread};
  const train::Fit calm = fit(options);
  // The loop is slow, so the copy of step 5 is there when the node dies.
  const train::Fit run =
      fit(options, {.die_at = 14, .whole_node = true, .rank = 0, .pause_ms = 20});
  EXPECT_EQ(run.restarts(), 1);
  EXPECT_EQ(run.history().size(), 20U);
  EXPECT_EQ(run.latest_checkpoint().hash, calm.latest_checkpoint().hash);
  ASSERT_EQ(gangs.size(), 2U);
  EXPECT_GE(gangs[1].step, 5);
  for (const std::string& node : nodes_of(gangs[1])) EXPECT_NE(node, gangs[0].ranks[0].node);
}

}  // namespace fit_over_nodes
