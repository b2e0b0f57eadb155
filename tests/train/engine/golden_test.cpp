// Ten steps of a small GPT-2 against a float64 run of another framework, in every layout.
#include "tests/golden/golden_run.hpp"
#include "tests/train/engine/ranks.hpp"

namespace troupe::train::testing {
namespace {

void expect_golden(const Layout& layout, Wire wire = Wire::local) {
  const golden::Text text(TROUPE_GOLDEN);
  on_ranks(layout.dp, wire, [&](RankContext& context) {
    Engine engine(golden::model(), layout, context.mesh, context.device, golden::optimizer());
    EXPECT_EQ(engine.index().parameter_count(), golden::kParameters);
    engine.initialize(1);
    engine.restore(golden::start(engine.snapshot()));
    for (std::size_t step = 0; step < golden::kSteps; ++step) {
      golden::Share share = text.share(step, context.mesh.dp_rank, layout.dp, layout.micro);
      const StepResult result = engine.step(share.micros());
      EXPECT_NEAR(result.loss / golden::kLosses[step], 1, 1e-5) << "loss of step " << step + 1;
      EXPECT_NEAR(result.norm / golden::kNorms[step], 1, 1e-5) << "norm of step " << step + 1;
    }
  });
}

TEST(GoldenRun, ThePlainRun) {
  expect_golden({});
}
TEST(GoldenRun, ThePlainRunInTwoMicroBatches) {
  expect_golden({.micro = 2});
}
TEST(GoldenRun, TwoRanks) {
  expect_golden({.dp = 2});
}
TEST(GoldenRun, TwoRanksThatShareMoments) {
  expect_golden({.dp = 2, .zero = 1});
}
TEST(GoldenRun, TwoRanksThatShareGradientsToo) {
  expect_golden({.dp = 2, .zero = 2, .micro = 2});
}
TEST(GoldenRun, TwoRanksThatShareWeightsToo) {
  expect_golden({.dp = 2, .zero = 3}, Wire::shm);
}
TEST(GoldenRun, FourRanksThatShareAllAndRecompute) {
  expect_golden({.dp = 4, .zero = 3, .offload = Offload::optimizer, .recompute = Recompute::full});
}

}  // namespace
}  // namespace troupe::train::testing
