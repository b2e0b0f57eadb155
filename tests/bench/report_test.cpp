// Proves the statistics of the bench: medians, ratios of the same round, and the rows that count
// as noisy.
#include "report.hpp"
#include "plot.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace troupe::bench {
namespace {

Series calm() {
  Series series;
  series.name = "task_sync";
  series.placement = "one_cpu";
  series.unit = "us";
  series.goal = at_most(Goal::Of::ratio, 4);
  series.values = {6, 7, 8};
  series.floors = {2, 2, 2};
  series.watched = {2, 2.05, 2.1};
  series.calmest = 0.02;
  return series;
}

TEST(Report, RatioIsTheMedianOfTheRounds) {
  Series series = calm();
  series.values = {6, 14, 8};
  series.floors = {2, 4, 2};  // round 2 was slow, and so was its floor
  const Judged judged = judge(series);
  EXPECT_DOUBLE_EQ(judged.row.value, 8);
  EXPECT_DOUBLE_EQ(judged.row.ratio, 3.5);
  EXPECT_FALSE(judged.noisy);
  EXPECT_EQ(judged.pass, true);
}

TEST(Report, WhatWasMeasuredInPairsSaysItsRatioItself) {
  Series series = calm();
  series.values = {6, 14, 8};
  series.floors = {2, 2, 2};
  series.ratios = {3, 3.5, 4};  // a median of pairs differs from a ratio of medians
  const Judged judged = judge(series);
  EXPECT_DOUBLE_EQ(judged.row.ratio, 3.5);
  EXPECT_DOUBLE_EQ(judged.row.spread, 1 / 3.5);  // the spread of the ratio, which has the goal
}

TEST(Report, ARowWhoseFloorNeverCalmsDownIsNoisyAndJudgedByNobody) {
  Series series = calm();
  series.calmest = 0.11;         // in every try within a round
  series.watched = {2, 2.1, 3};  // and from round to round
  const Judged judged = judge(series);
  EXPECT_TRUE(judged.noisy);
  EXPECT_FALSE(judged.pass.has_value());
}

TEST(Report, OneCalmTryIsEnough) {
  Series series = calm();
  series.watched = {2, 2.1, 3};
  EXPECT_FALSE(judge(series).noisy);
}

TEST(Report, SoAreRoundsThatAgree) {
  Series series = calm();
  series.calmest = 0.5;
  EXPECT_FALSE(judge(series).noisy);
  series.watched = {2, 2};  // two values may agree by chance
  EXPECT_TRUE(judge(series).noisy);
}

std::vector<Judged> rows(std::size_t calm_ones, std::size_t noisy_ones) {
  std::vector<Judged> all(calm_ones + noisy_ones, judge(calm()));
  for (std::size_t i = calm_ones; i < all.size(); ++i) all[i].noisy = true;
  return all;
}

TEST(Report, ARunFailsAboveATenthOfNoisyRows) {
  EXPECT_FALSE(too_noisy(rows(20, 0)));
  EXPECT_FALSE(too_noisy(rows(18, 2)));
  EXPECT_TRUE(too_noisy(rows(17, 3)));
  EXPECT_TRUE(too_noisy(rows(1, 1)));
}

TEST(Report, JsonSaysWhichRowsAreNoisy) {
  const auto report = nlohmann::json::parse(to_report_json(rows(1, 1)));
  ASSERT_EQ(report.at("rows").size(), 2u);
  EXPECT_EQ(report.at("rows")[0].at("noisy"), false);
  EXPECT_EQ(report.at("rows")[1].at("noisy"), true);
  for (const char* key : {"name", "placement", "value", "unit", "floor", "ratio", "spread"})
    EXPECT_TRUE(report.at("rows")[0].contains(key)) << key;
}

TEST(Plot, TheLawIsThePowerOfGrowth) {
  Curve curve{"waiting", "refs", "s", 1, {{10, 3}, {100, 30}, {1000, 300}}};
  EXPECT_NEAR(power_of(curve), 1, 1e-9);
  EXPECT_TRUE(keeps_law(curve));
  curve.points = {{10, 1}, {100, 100}, {1000, 10'000}};
  EXPECT_NEAR(power_of(curve), 2, 1e-9);
  EXPECT_FALSE(keeps_law(curve));
  EXPECT_NE(to_text({curve}).find("NO"), std::string::npos);
}

TEST(Plot, SvgShowsEveryPoint) {
  const Curve curve{"waiting", "refs", "s", 1, {{10, 3}, {100, 30}, {1000, 300}}};
  const std::string svg = to_svg({curve, curve, curve});
  std::size_t circles = 0;
  for (std::size_t at = svg.find("<circle"); at != std::string::npos;
       at = svg.find("<circle", at + 1))
    ++circles;
  EXPECT_EQ(circles, 9u);
  EXPECT_EQ(nlohmann::json::parse(to_json(std::vector<Curve>{curve}))[0].at("points").size(), 3u);
}

}  // namespace
}  // namespace troupe::bench
