// Tests gangs in which a rank stops without dying: the others name it in time, and the next gang
// ends with the weights of a calm one.
#include "tests/eventually.hpp"
#include "troupe/train/train.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace fit_stopped {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
namespace train = troupe::train;

constexpr auto kTimeout = 1500ms;

/// At step 12 of the first gang, `victim` stops its process; the others write down what they hear.
void stops(train::Worker& w, int victim, const std::string& folder) {
  std::vector<float> weights(3000, 1.0f);
  w.restore(weights);
  while (w.step() < 20) {
    w.next_step();
    const bool hit = w.step() == 12 && w.incarnation() == 0;
    if (hit && w.rank() == victim) ::raise(SIGSTOP);
    const troupe::Time begun = troupe::steady_now();
    try {
      for (float& weight : weights) weight *= 1.0f - 0.01f * static_cast<float>(w.rank() + 1);
      w.all_reduce_mean(weights);
    } catch (const troupe::Error& error) {
      const std::chrono::duration<double> took = troupe::steady_now() - begun;
      std::ofstream(fs::path(folder) / std::to_string(w.rank()))
          << took.count() << ' ' << name_of(error.code()) << ' ' << error.message();
      throw;
    }
    w.report({.step = w.step(), .loss = weights[0]});
    if (w.wants_checkpoint()) w.checkpoint(weights);
  }
}

class FitStopped : public testing::TestWithParam<int> {
 protected:
  ~FitStopped() override {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
  train::Fit fit(int victim) {
    return train::fit<stops>(ctx,
                             {.workers = 4,
                              .max_restarts = 1,
                              .placement = troupe::Placement::spread,
                              .run = {.every = 5},
                              .timeout = kTimeout},
                             victim, folder);
  }

  troupe::Session session{{.cpus = 2, .nodes = 2}};
  troupe::Context ctx = session.context();
  std::string folder = [] {
    std::string name = testing::TempDir() + "troupe_stopped_XXXXXX";
    return std::string(::mkdtemp(name.data()));
  }();
};

// The ranks are 0 and 1 on the driver's node, 2 and 3 on the other; 0 and 2 are heads.
TEST_P(FitStopped, IsNamedByAllOthersAndTheGangGoesOn) {
  ASSERT_TRUE(eventually([this] { return ctx.cluster().nodes.size() == 2; }));
  const train::Fit calm = fit(-1);
  const int victim = GetParam();
  const train::Fit run = fit(victim);
  EXPECT_EQ(run.restarts(), 1);
  EXPECT_EQ(run.history().size(), 20U);
  EXPECT_EQ(run.latest_checkpoint().hash, calm.latest_checkpoint().hash);
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == victim) continue;
    std::ifstream file(fs::path(folder) / std::to_string(rank));
    double took = 0;
    std::string code, message;
    file >> took >> code;
    std::getline(file, message);
    EXPECT_EQ(code, "timed_out") << "rank " << rank << ":" << message;
    EXPECT_NE(message.find("rank " + std::to_string(victim) + " did not arrive"), std::string::npos)
        << message;
    EXPECT_GE(took, 1.4) << rank;
    EXPECT_LT(took, 4.5) << rank;
  }
}
INSTANTIATE_TEST_SUITE_P(HeadsAndOthers, FitStopped, testing::Values(0, 1, 2, 3));

}  // namespace fit_stopped
