// Tests gangs of trials over nodes: more of them than fit at once, and what becomes of the ranks
// when their trial is stopped, killed or exploited.
#include "tests/eventually.hpp"
#include "troupe/troupe.hpp"
#include "troupe/tune/tune.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

namespace trial_gangs {

namespace fs = std::filesystem;
namespace train = troupe::train;
namespace tune = troupe::tune;

struct Hp {
  double rate = 0.1;
};

/// Marks its process by a file. At step 4, rank 1 kills its trial's process if that is given.
void learn(train::Worker& w, Hp hp, const std::string& folder, int trial) {
  std::ofstream(fs::path(folder) / std::to_string(::getpid())) << w.rank();
  std::vector<float> weights(100, 1.0f);
  w.restore(weights);
  do {
    w.next_step();
    if (trial != 0 && w.step() == 4 && w.rank() == 1) ::kill(trial, SIGKILL);
    for (float& weight : weights) weight *= static_cast<float>(1 - hp.rate);
    w.all_reduce_mean(weights);
    w.checkpoint(weights);
  } while (w.report({.step = w.step(), .loss = weights[0]}));
}
/// `cpus`: of each rank.
void trial(tune::Trial& t, Hp hp, const std::string& folder, double cpus) {
  const bool dies = t.number() == 1 && t.attempt() == 1;
  train::fit<learn>(t, {.workers = 2, .max_restarts = 3, .cpus_per_worker = cpus}, hp, folder,
                    dies ? ::getpid() : 0);
}

class GangsOfTrials : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(eventually([this] { return ctx.cluster().nodes.size() == 3; }));
  }
  ~GangsOfTrials() override {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
  template <class Scheduler>
  auto optimize(const Scheduler& scheduler, double cpus = 1) {
    return tune::optimize<trial, Hp, Scheduler>(
        ctx, tune::Space<Hp>{}.with(&Hp::rate, tune::log_uniform(1e-3, 0.3)),
        {.goal = tune::minimize,
         .trials = 4,
         .scheduler = scheduler,
         .concurrent = 4,
         .max_failures = 1,
         .max_steps = 12,
         .per_trial = {.cpus = cpus, .workers = cpus > 0 ? 2 : 0},
         .seed = 1,
         .show = false},
        folder, cpus);
  }
  /// Returns the ranks' processes that are still there.
  int left() const {
    const fs::directory_iterator all(folder);
    return static_cast<int>(std::count_if(begin(all), end(all), [](const auto& entry) {
      return ::kill(std::stoi(entry.path().filename()), 0) == 0;
    }));
  }

  troupe::Session session{{.cpus = 1, .nodes = 3}};
  troupe::Context ctx = session.context();
  std::string folder = [] {
    std::string name = testing::TempDir() + "troupe_trials_XXXXXX";
    return std::string(::mkdtemp(name.data()));
  }();
};

TEST_F(GangsOfTrials, FourOfTwoRanksOnThreeCpusAllComplete) {
  const auto best = optimize(tune::Fifo{});
  for (const tune::TrialInfo& info : best.board.trials) {
    EXPECT_EQ(info.state, tune::TrialState::completed) << info.number << ": " << info.note;
    EXPECT_EQ(info.step(), 12);
    EXPECT_EQ(info.failures, info.number == 1 ? 1 : 0) << info.number << ": " << info.note;
  }
  EXPECT_GE(std::distance(fs::directory_iterator(folder), {}), 10) << "two for each attempt";
  EXPECT_TRUE(eventually([this] { return left() == 0; })) << left() << " ranks are left";
}

TEST_F(GangsOfTrials, OfExploitedTrialsLeaveNoRankBehind) {
  const auto best =
      optimize(tune::Pbt{.perturb_every = 3, .quantile = 0.5, .synchronous = true}, 0);
  EXPECT_TRUE(std::any_of(best.board.trials.begin(), best.board.trials.end(),
                          [](const auto& info) { return !info.copies.empty(); }));
  EXPECT_TRUE(eventually([this] { return left() == 0; })) << left() << " ranks are left";
}

TEST_F(GangsOfTrials, OfStoppedTrialsLeaveNoRankBehind) {
  const auto best = optimize(tune::MedianStopping{.grace = 2, .min_samples = 1});
  EXPECT_TRUE(std::any_of(best.board.trials.begin(), best.board.trials.end(), [](const auto& info) {
    return info.state == tune::TrialState::stopped;
  }));
  EXPECT_TRUE(eventually([this] { return left() == 0; })) << left() << " ranks are left";
}

}  // namespace trial_gangs
