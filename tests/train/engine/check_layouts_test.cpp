// Tests check_layouts(): it accepts correct layers and names the fault of others.
#include "troupe/train/engine/check_layouts.hpp"

#include "tests/train/engine/divided_layers.hpp"
#include "troupe/runtime/base/error.hpp"
#include "troupe/train/params/plan.hpp"

#include <gtest/gtest.h>

namespace troupe::train::testing {
namespace {

LayoutCheckOptions checked(std::vector<Layout> layouts = {}) {
  const Spec rows{DType::f32, {8, kDividedChannels}};
  return {.input = rows, .targets = rows, .layouts = std::move(layouts)};
}

std::string verdict_on(Fault fault, const std::vector<Layout>& layouts) {
  try {
    check_layouts([fault] { return divided_model(fault); }, checked(layouts));
  } catch (const InvalidArgument& error) {
    return error.message();
  }
  return "right";
}

bool mentions(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

TEST(CheckLayouts, PassesALayerThatIsRightInEveryLayoutOfTwoAndFourRanks) {
  const LayoutReport report = check_layouts([] { return divided_model(); }, checked());
  int with_tp = 0;
  for (const LayoutDifference& each : report.layouts) {
    if (each.layout.pp > 1) continue;
    EXPECT_EQ(each.refused, "");
    EXPECT_EQ(each.weights.size(), 10u);
    EXPECT_LT(each.loss, 1e-5) << report.text();
    EXPECT_LT(each.worst().relative, 1e-5) << report.text();
    with_tp += each.layout.tp > 1;
  }
  EXPECT_GE(with_tp, 12) << "dp=1 tp=2, dp=2 tp=2 with four kinds of zero, dp=1 tp=4; each twice";
}

TEST(CheckLayouts, FindsALayerThatForgetsItsSum) {
  const std::string forward = verdict_on(Fault::no_sum_forward, {{.tp = 2}});
  EXPECT_TRUE(mentions(forward, "dp=1 tp=2")) << forward;
  EXPECT_TRUE(mentions(forward, "the loss of the first step differs")) << forward;
  const std::string backward = verdict_on(Fault::no_sum_backward, {{.tp = 2}});
  EXPECT_TRUE(mentions(backward, "mlp.0")) << "the layer before it: " << backward;
}

TEST(CheckLayouts, FindsABiasThatEveryRankAdds) {
  const std::string twice = verdict_on(Fault::sums_bias_twice, {{.tp = 2}});
  EXPECT_TRUE(mentions(twice, "the loss of the first step differs")) << twice;
}

TEST(CheckLayouts, FindsShardsThatSayTheWrongThingOfTheirGradient) {
  const Layout divided{.tp = 2, .sequence = true}, whole{.tp = 2};
  const std::string missing = verdict_on(Fault::not_partial, {divided});
  EXPECT_TRUE(mentions(missing, "mlp.1.bias is not the same on rank 0 and rank 1")) << missing;
  EXPECT_EQ(verdict_on(Fault::not_partial, {whole}), "right");
  const std::string doubled = verdict_on(Fault::wrongly_partial, {whole});
  EXPECT_TRUE(mentions(doubled, "mlp.1.bias")) << doubled;
}

TEST(CheckLayouts, FindsInitialWeightsThatDependOnTheShard) {
  const std::string message = verdict_on(Fault::local_start, {{.tp = 2}});
  EXPECT_TRUE(mentions(message, "the initial weights of mlp.1.up")) << message;
}

TEST(CheckLayouts, FindsRanksWhoseCallsDiffer) {
  const std::string message = verdict_on(Fault::one_rank_sums, {{.tp = 2}});
  EXPECT_TRUE(mentions(message, "a rank failed")) << message;
}

TEST(CheckLayouts, SaysWhichLayoutsAModelDoesNotTake) {
  LayoutCheckOptions options = checked();
  options.ranks = {2, 5};
  const LayoutReport report = check_layouts([] { return divided_model(); }, options);
  EXPECT_TRUE(mentions(report.text(), "samples do not divide by dp * micro = 5")) << report.text();
  EXPECT_TRUE(mentions(report.text(), "mlp.0.up")) << report.text();
}

TEST(CheckLayouts, RefusesALayoutThatWasAskedForAndCannotRun) {
  EXPECT_TRUE(mentions(verdict_on(Fault::none, {{.tp = 5}}), "is refused"))
      << verdict_on(Fault::none, {{.tp = 5}});
}

TEST(AllLayouts, AreThoseWhoseProductIsTheRanks) {
  for (const int ranks : {1, 2, 4, 6})
    for (const Layout& layout : all_layouts(ranks)) {
      EXPECT_NO_THROW(check(layout, ranks)) << layout_text(layout);
      EXPECT_EQ(layout.ranks(), ranks);
    }
  EXPECT_EQ(all_layouts(1).size(), 1u);
  EXPECT_EQ(all_layouts(2).size(), 4u + 2 + 1);
}

}  // namespace
}  // namespace troupe::train::testing
