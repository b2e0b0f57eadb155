// Tests bf16 and f16 runs over tensor-parallel ranks: close to one rank's results, and the same
// on all ranks.
#include "tests/train/engine/ranks.hpp"

#include <cmath>

namespace troupe::train::testing {
namespace {

class MixedTensorParallel : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override { ASSERT_TRUE(kernels::use_blas(kernels::Blas::builtin)); }

  static std::vector<Record> run_with(Layout layout) {
    layout.compute = GetParam();
    Experiment e{.layout = layout, .ignored = 0.3};
    e.shape.heads = 4;
    e.shape.dropout = 0.1f;
    e.steps = 10;
    return run(e);
  }
};

TEST_P(MixedTensorParallel, IsWithinTwoPercentOfOneRank) {
  const Record alone = run_with({}).front();
  for (const Layout& layout :
       {Layout{.tp = 2}, Layout{.tp = 2, .sequence = true, .recompute = Recompute::full},
        Layout{.tp = 4, .sequence = true}, Layout{.dp = 2, .tp = 2, .zero = 3, .sequence = true}}) {
    const std::vector<Record> ranks = run_with(layout);
    for (const Record& record : ranks) EXPECT_EQ(record, ranks.front());
    double most = 0;
    for (std::size_t i = 0; i < alone.losses.size(); ++i) {
      most = std::max(most, std::abs(ranks.front().losses[i] / alone.losses[i] - 1));
      EXPECT_NEAR(ranks.front().norms[i] / alone.norms[i], 1, 5e-2) << "step " << i;
    }
    EXPECT_LE(most, 2e-2);
    EXPECT_GT(most, 1e-7) << "16 bits were in use";
  }
}

TEST_P(MixedTensorParallel, FullRecomputationChangesNoBit) {
  for (const bool sequence : {false, true}) {
    const Layout kept{.tp = 2, .micro = 2, .sequence = sequence};
    Layout again = kept;
    again.recompute = Recompute::full;
    EXPECT_EQ(run_with(again).front(), run_with(kept).front());
  }
}

INSTANTIATE_TEST_SUITE_P(Types, MixedTensorParallel, ::testing::Values(DType::bf16, DType::f16));

}  // namespace
}  // namespace troupe::train::testing
