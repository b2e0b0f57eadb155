// Tests ten steps of a small GPT-2 in every layout against a float64 run of another framework.
#include "tests/golden/golden_run.hpp"
#include "tests/paths.hpp"
#include "tests/train/engine/ranks.hpp"

namespace troupe::train::testing {
namespace {

void expect_golden(const Layout& layout, Wire wire = Wire::local) {
  const golden::Text text(paths::golden());
  on_mesh(mesh_of(layout), wire, [&](RankContext& context) {
    Engine engine(golden::model(), layout, context.mesh, context.device, golden::optimizer());
    if (layout.tp * layout.pp == 1) {
      EXPECT_EQ(engine.index().parameter_count(), golden::kParameters);
    }
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
TEST(GoldenRun, TwoRanksThatDivideTensors) {
  expect_golden({.tp = 2});
}
TEST(GoldenRun, TwoRanksThatDivideTensorsAndRows) {
  expect_golden({.tp = 2, .sequence = true});
  expect_golden({.tp = 2, .micro = 2, .sequence = true, .recompute = Recompute::full}, Wire::shm);
}
TEST(GoldenRun, FourRanksThatDivideTensorsAndTheBatch) {
  expect_golden({.dp = 2, .tp = 2, .zero = 1});
  expect_golden({.dp = 2, .tp = 2, .zero = 3, .sequence = true, .offload = Offload::optimizer});
}

TEST(GoldenRun, TwoStages) {
  for (const char* schedule : {"gpipe", "1f1b"})
    for (const int micro : {1, 2, 4})
      expect_golden({.pp = 2, .micro = micro, .schedule = schedule});
}
TEST(GoldenRun, TwoStagesOfTwoRanksThatShareMoments) {
  expect_golden({.dp = 2, .pp = 2, .zero = 1, .micro = 2, .recompute = Recompute::full}, Wire::shm);
}
TEST(GoldenRun, EightRanksThatDivideTheBatchTensorsAndLayers) {
  expect_golden({.dp = 2, .tp = 2, .pp = 2, .zero = 1, .micro = 2});
  expect_golden({.dp = 2, .tp = 2, .pp = 2, .micro = 2, .sequence = true, .schedule = "gpipe"},
                Wire::shm);
}

TEST(GoldenRun, TwoStagesOfRanksThatDivideTensors) {
  for (const bool sequence : {false, true})
    for (const Recompute recompute : {Recompute::none, Recompute::full})
      expect_golden({.tp = 2, .pp = 2, .micro = 2, .sequence = sequence, .recompute = recompute});
}

}  // namespace
}  // namespace troupe::train::testing
