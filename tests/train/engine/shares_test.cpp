// Tests that any number of ranks gives the results of one rank, though shares, micro-batches and
// counted targets are unequal.
#include "tests/train/engine/ranks.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::train::testing {
namespace {

Experiment with(const Layout& layout) {
  return {.layout = layout, .batch = 16, .ignored = 0.3, .steps = 20};
}

double worst(const Record& a, const Record& b) {
  double difference = 0;
  for (std::size_t i = 0; i < a.losses.size(); ++i)
    difference = std::max(difference, std::abs(a.losses[i] / b.losses[i] - 1));
  return difference;
}

TEST(UnequalShares, OneTwoThreeAndFiveRanksEqualOne) {
  const Record alone = run(with({})).front();
  for (const int dp : {1, 2, 3, 5})
    for (const int zero : {0, 1, 2, 3}) {
      SCOPED_TRACE(std::to_string(dp) + " ranks, zero = " + std::to_string(zero));
      const std::vector<Record> ranks = run(with({.dp = dp, .zero = zero, .micro = 2}));
      EXPECT_LT(worst(ranks.front(), alone), 1e-5);
      for (const Record& record : ranks) EXPECT_EQ(record, ranks.front());
    }
}

TEST(UnequalShares, TheLossFalls) {
  const Record alone = run(with({})).front();
  EXPECT_LT(alone.losses.back(), alone.losses.front() - 0.1);
}

// Three ranks share two rows, so one rank has none. All end with the same weights.
TEST(UnequalShares, ARankMayHaveNoSamples) {
  Experiment few = with({.dp = 3, .zero = 3});
  few.batch = 2;
  Experiment alone = few;
  alone.layout = {};
  const std::vector<Record> ranks = run(few);
  EXPECT_LT(worst(ranks.front(), run(alone).front()), 1e-5);
  for (const Record& record : ranks) EXPECT_EQ(record, ranks.front());
}

TEST(UnequalShares, EvaluationIsTheMeanOverTargetsOfAllRanks) {
  const Experiment e = with({});
  double alone = 0;
  const auto evaluate = [&](RankContext& context, const Layout& layout) {
    Engine engine(gpt(e.shape), layout, context.mesh, context.device, e.optimizer);
    engine.initialize(1);
    // Rank r has r + 1 batches.
    std::vector<Rows> parts = share_of(e.shape, 0, 16, context.mesh.dp_rank, layout.dp,
                                       context.mesh.dp_rank + 1, e.ignored);
    const std::uint64_t before = engine.weights_hash();
    const double loss = engine.evaluate(micros_of(parts));
    EXPECT_EQ(engine.weights_hash(), before);
    return loss;
  };
  on_ranks(1, Wire::local, [&](RankContext& context) { alone = evaluate(context, {}); });
  EXPECT_NEAR(alone, std::log(61.0), 0.2);
  for (const int zero : {0, 3})
    on_ranks(3, Wire::local, [&](RankContext& context) {
      EXPECT_NEAR(evaluate(context, {.dp = 3, .zero = zero}) / alone, 1, 1e-6);
    });
}

TEST(UnequalShares, PredictionsAreLogitsOfTheWeightsInEveryLayout) {
  const Experiment e = with({});
  Rows rows = rows_of(e.shape, 0, 0, 2);
  std::vector<float> alone;
  const auto predict = [&](RankContext& context, const Layout& layout) {
    Engine engine(gpt(e.shape), layout, context.mesh, context.device, e.optimizer);
    engine.initialize(1);
    const TensorView logits = engine.predict(rows.micro().input);
    EXPECT_EQ(logits.shape, (Shape{2, e.shape.context, e.shape.vocabulary}));
    return std::vector<float>(logits.as<float>(), logits.as<float>() + logits.count());
  };
  on_ranks(1, Wire::local, [&](RankContext& context) { alone = predict(context, {}); });
  EXPECT_GT(*std::max_element(alone.begin(), alone.end()), 0);
  on_ranks(2, Wire::local,
           [&](RankContext& context) { EXPECT_EQ(predict(context, {.dp = 2, .zero = 3}), alone); });
}

}  // namespace
}  // namespace troupe::train::testing
