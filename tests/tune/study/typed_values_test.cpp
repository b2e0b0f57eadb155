// Tests what a person may type as name=value for a point and for options, and what each refusal
// says.
#include "troupe/tune/study/typed_values.hpp"

#include <gtest/gtest.h>
#include <cmath>

namespace troupe::tune {
namespace typed_values_test {
namespace {

SearchSpace space() {
  return {{{"lr", log_uniform(1e-4, 1)},
           {"width", integers(1, 8)},
           {"optimizer", choices({"sgd", "adam"})}}};
}

std::string why_not(const Result<Point>& point) {
  return point ? "" : point.error().message();
}

TEST(TypedValues, APointTakesNumbersAndOptionsByName) {
  const auto point = read_point(space(), {{"lr", "1e-3"}, {"width", "4"}, {"optimizer", "adam"}});
  ASSERT_TRUE(point.ok()) << point.error().message();
  EXPECT_EQ(*point, (Point{1e-3, 4, 1}));
}

TEST(TypedValues, APointThatCannotBeIsRefusedWithWhatMayBeTyped) {
  const auto read = [](TypedValues values) {
    values.try_emplace("lr", "0.1");
    values.try_emplace("width", "2");
    values.try_emplace("optimizer", "sgd");
    return why_not(read_point(space(), values));
  };
  EXPECT_EQ(read({}), "");
  EXPECT_EQ(read({{"momentum", "1"}}),
            "tune: the space has no parameter 'momentum': it has lr, width, optimizer");
  EXPECT_EQ(read({{"optimizer", "lion"}}),
            "tune: optimizer = 'lion' is no option of choice(sgd, adam)");
  EXPECT_EQ(read({{"lr", "fast"}}),
            "tune: lr = 'fast' is no number: take one of log_uniform(0.0001, 1)");
  EXPECT_EQ(read({{"lr", "2"}}), "tune: lr = '2' is outside log_uniform(0.0001, 1)");
  EXPECT_EQ(read({{"width", "2.5"}}), "tune: width = '2.5' is outside integers(1, 8)");
  for (const char* text : {"", " 0.1", "0.1 ", "nan", "inf", "-inf", "0x1", "1e999", "0,1"})
    EXPECT_NE(read({{"lr", text}}), "") << text;
  EXPECT_EQ(read({{"\x1b[2J", "1"}}).find('\x1b'), std::string::npos);
  EXPECT_EQ(why_not(read_point(space(), {{"lr", "0.1"}, {"width", "2"}})),
            "tune: parameter optimizer has no value: give each of lr, width, optimizer");
}

TEST(TypedValues, OptionsHaveTheirOwnKindsOfTexts) {
  const auto settings = read_settings({{"trials", "500"},
                                       {"time_limit", "2h"},
                                       {"stop_grace", "0"},
                                       {"target", "none"},
                                       {"max_failures", "-1"},
                                       {"fail_fast", "true"},
                                       {"save_at_end", "false"}});
  ASSERT_TRUE(settings.ok()) << settings.error().message();
  EXPECT_EQ(settings->at("trials"), 500);
  EXPECT_EQ(settings->at("time_limit"), 7200e6);
  EXPECT_EQ(settings->at("stop_grace"), 0);
  EXPECT_TRUE(std::isnan(settings->at("target")));
  EXPECT_EQ(settings->at("max_failures"), -1);
  EXPECT_EQ(settings->at("fail_fast"), 1);
  EXPECT_EQ(settings->at("save_at_end"), 0);
}

TEST(TypedValues, OptionsThatMayNotChangeAreRefused) {
  const auto why = [](const std::string& name, const std::string& text) {
    const auto settings = read_settings({{name, text}});
    return settings ? "" : settings.error().message();
  };
  for (const char* name : {"goal", "seed", "scheduler", "metric", ""}) {
    const std::string text = why(name, "1");
    EXPECT_NE(text.find("is no option that may change while a study runs"), std::string::npos);
    EXPECT_NE(text.find("trials"), std::string::npos) << text;
  }
  EXPECT_EQ(why("trials", "0"), "tune: trials = '0' is no whole number from 1 to 2147483647");
  for (const char* text : {"2.5", "-3", "many", "1e10", "nan", ""})
    EXPECT_NE(why("concurrent", text), "") << text;
  EXPECT_EQ(why("time_limit", "30"),
            "tune: time_limit = '30' is no time: take one like 30s, 10m or 2h");
  EXPECT_NE(why("target", "high"), "");
  EXPECT_NE(why("fail_fast", "yes"), "");
  EXPECT_FALSE(read_settings({}).ok());
}

}  // namespace
}  // namespace typed_values_test
}  // namespace troupe::tune
