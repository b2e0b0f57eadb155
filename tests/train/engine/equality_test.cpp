// Tests which layouts give the same bits of weights, moments, losses and norms. The clip and
// dropout are active, and products use the built-in GEMM.
#include "tests/train/engine/ranks.hpp"

#include <algorithm>

namespace troupe::train::testing {
namespace {

class Equality : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(kernels::use_blas(kernels::Blas::builtin)); }

  static Experiment with(const Layout& layout, Wire wire = Wire::local) {
    Experiment e;
    e.shape.dropout = 0.1f;
    e.layout = layout;
    e.wire = wire;
    return e;
  }

  /// Expects that both give the same on all of their ranks, and that the clip was active.
  static void expect_equal(const Experiment& a, const Experiment& b) {
    const std::vector<Record> of_a = run(a), of_b = run(b);
    for (const Record& record : of_a) EXPECT_EQ(record, of_a.front());
    for (const Record& record : of_b) EXPECT_EQ(record, of_a.front());
    for (const double norm : of_a.front().norms) EXPECT_GT(norm, a.optimizer.max_norm);
  }
};

TEST_F(Equality, OtherSeedsAndNoDropoutGiveOtherBits) {
  Experiment other_seed = with({}), no_dropout = with({});
  other_seed.seed = 2;
  no_dropout.shape.dropout = 0;
  const Record plain = run(with({})).front();
  EXPECT_NE(run(other_seed).front().weights, plain.weights);
  EXPECT_NE(run(no_dropout).front().weights, plain.weights);
}

TEST_F(Equality, Zero1GivesTheBitsOfDataParallel) {
  for (const int dp : {2, 3, 4})
    for (const int micro : {1, 2}) {
      const Wire wire = dp == 3 ? Wire::shm : Wire::local;
      SCOPED_TRACE(std::to_string(dp) + " ranks, m = " + std::to_string(micro));
      expect_equal(with({.dp = dp, .micro = micro}, wire),
                   with({.dp = dp, .zero = 1, .micro = micro}, wire));
    }
}

TEST_F(Equality, Zero2And3GiveTheBitsOfDataParallelWithOneMicroBatch) {
  for (const int dp : {2, 3, 4})
    for (const int zero : {2, 3}) {
      SCOPED_TRACE(std::to_string(dp) + " ranks, zero = " + std::to_string(zero));
      expect_equal(with({.dp = dp}), with({.dp = dp, .zero = zero}));
    }
}

TEST_F(Equality, SharedMemoryGivesTheBitsOfThreads) {
  expect_equal(with({.dp = 2, .zero = 3}), with({.dp = 2, .zero = 3}, Wire::shm));
}

// With zero 2 and 3 each micro-batch is reduced by itself, so sums have another order.
TEST_F(Equality, Zero2And3AreCloseToDataParallelWithManyMicroBatches) {
  const Record plain = run(with({.dp = 2, .micro = 3})).front();
  for (const int zero : {2, 3}) {
    const Record other = run(with({.dp = 2, .zero = zero, .micro = 3})).front();
    for (std::size_t i = 0; i < plain.losses.size(); ++i) {
      EXPECT_NEAR(other.losses[i] / plain.losses[i], 1, 1e-6);
      EXPECT_NEAR(other.norms[i] / plain.norms[i], 1, 1e-5);
    }
  }
}

TEST_F(Equality, AccumulationGivesTheBitsOfOneBatch) {
  for (const int micro : {2, 4, 8}) expect_equal(with({}), with({.micro = micro}));
}

TEST_F(Equality, RecomputationChangesNothing) {
  for (const Recompute recompute : {Recompute::full, Recompute::selective}) {
    expect_equal(with({}), with({.recompute = recompute}));
    expect_equal(with({.dp = 2, .zero = 3, .micro = 2}),
                 with({.dp = 2, .zero = 3, .micro = 2, .recompute = recompute}));
  }
}

TEST_F(Equality, OffloadChangesNothing) {
  for (const int zero : {0, 1, 3})
    expect_equal(with({.dp = 2, .zero = zero}),
                 with({.dp = 2, .zero = zero, .offload = Offload::optimizer}));
}

TEST_F(Equality, ThreadsOfARankChangeNothing) {
  Experiment e = with({.recompute = Recompute::full});
  e.shape.channels = 64;
  const Record one = run(e).front();
  for (const int threads : {2, 3})
    on_ranks(1, Wire::local, [&](RankContext& context) {
      context.device = kernels::cpu_device({.threads = threads});
      EXPECT_EQ(run_on(context, e), one) << threads << " threads";
    });
}

// Dropout depends on the samples' numbers and not on the rank that has them: ranks with unequal
// shares use the masks of one rank.
TEST_F(Equality, DropoutIsThatOfOneRankOnAnyNumberOfRanks) {
  const Record plain = run(with({})).front();
  for (const int dp : {2, 3, 4}) {
    const Record other = run(with({.dp = dp})).front();
    for (std::size_t i = 0; i < plain.losses.size(); ++i)
      EXPECT_NEAR(other.losses[i] / plain.losses[i], 1, 1e-5) << dp << " ranks, step " << i;
  }
}

}  // namespace
}  // namespace troupe::train::testing
