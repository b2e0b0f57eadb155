// Tests `troupe train plan`: the memory that a model needs in each layout, before any is taken.
#include "command.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace troupe::cli {
namespace {

using nlohmann::json;

json plan_of(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"train", "plan", "--json"});
  const Outcome o = troupe_command(std::move(arguments));
  EXPECT_EQ(o.code, 0) << o.err;
  return json::parse(o.out);
}

const json* of_layout(const json& plans, int dp, int zero) {
  for (const json& plan : plans.at("fit"))
    if (plan.at("dp") == dp && plan.at("zero") == zero && plan.at("recompute") == "none" &&
        !plan.at("offload"))
      return &plan;
  return nullptr;
}

TEST(TrainPlan, CountsSixteenBytesAParameterAndWhatZeroShares) {
  const json plans = plan_of({"--model", "gpt2", "--ranks", "4", "--memory", "80GiB"});
  const std::int64_t p = 124'439'808, tied = 4 * 50257 * 768;
  EXPECT_EQ(plans.at("plain").at("parameters"), p);
  const json& plain = plans.at("plain");
  EXPECT_EQ(plain.at("weights").get<std::int64_t>() + plain.at("gradients").get<std::int64_t>() +
                plain.at("moments").get<std::int64_t>() - plain.at("padding").get<std::int64_t>(),
            16 * p);
  EXPECT_EQ(plain.at("tied"), tied);
  const json* zero1 = of_layout(plans, 4, 1);
  const json* zero3 = of_layout(plans, 4, 3);
  ASSERT_NE(zero1, nullptr);
  ASSERT_NE(zero3, nullptr);
  EXPECT_NEAR(zero1->at("moments").get<double>(), 8.0 * p / 4, 1e-3 * 8 * p / 4);
  EXPECT_NEAR(zero3->at("weights").get<double>(), 4.0 * p / 4, 1e-3 * 4 * p / 4);
}

TEST(TrainPlan, ListsNoLayoutWithMoreRanksThanSamples) {
  const json plans = plan_of({"--model", "char", "--ranks", "8", "--batch", "3"});
  int most = 0;
  for (const json& plan : plans.at("fit")) most = std::max(most, plan.at("dp").get<int>());
  EXPECT_EQ(most, 3);
}

TEST(TrainPlan, DividesTensorsAndLayersWhereItIsTold) {
  const json plans = plan_of({"--model", "char", "--ranks", "4", "--batch", "4", "--micro", "2",
                              "--tp", "2", "--pp", "2", "--schedule", "gpipe"});
  const json* whole = nullptr;
  const json* divided = nullptr;
  for (const json& plan : plans.at("fit")) {
    EXPECT_LE(plan.at("tp").get<int>(), 2);
    EXPECT_LE(plan.at("pp").get<int>(), 2);
    if (plan.at("dp") == 1 && plan.at("tp") == 1 && whole == nullptr) whole = &plan;
    if (plan.at("tp") == 2 && plan.at("pp") == 2 && divided == nullptr) divided = &plan;
  }
  ASSERT_NE(whole, nullptr);
  ASSERT_NE(divided, nullptr);
  EXPECT_EQ(whole->at("tp_traffic_per_step"), 0);
  EXPECT_GT(divided->at("tp_traffic_per_step"), 0);
  EXPECT_GT(divided->at("pp_traffic_per_step"), 0);
  EXPECT_LT(divided->at("weights").get<std::int64_t>(), whole->at("weights").get<std::int64_t>());
  const Outcome schedule = troupe_command(
      {"train", "plan", "--model", "char", "--ranks", "2", "--pp", "2", "--schedule", "zigzag"});
  EXPECT_EQ(schedule.code, 2);
  EXPECT_NE(schedule.err.find("choose gpipe"), std::string::npos) << schedule.err;
}

TEST(TrainPlan, KeepsAMasterBeside16BitWeights) {
  const json plans = plan_of({"--model", "char", "--compute", "bf16"});
  const json& plain = plans.at("plain");
  EXPECT_EQ(plain.at("master").get<std::int64_t>(), 2 * plain.at("weights").get<std::int64_t>());
  const Outcome type = troupe_command({"train", "plan", "--model", "char", "--compute", "f8"});
  EXPECT_EQ(type.code, 2);
  EXPECT_NE(type.err.find("choose f32, bf16 or f16"), std::string::npos) << type.err;
}

TEST(TrainPlan, SaysWhatIsMissingWhenNothingFits) {
  const Outcome o = troupe_command({"train", "plan", "--model", "gpt2-xl", "--memory", "1GiB"});
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.out.find("gpt2-xl"), std::string::npos) << o.out;
}

TEST(TrainPlan, NamesWhatIsWrong) {
  const Outcome model = troupe_command({"train", "plan", "--model", "gpt5"});
  EXPECT_EQ(model.code, 2);
  EXPECT_NE(model.err.find("gpt2-medium"), std::string::npos) << model.err;
  const Outcome memory = troupe_command({"train", "plan", "--memory", "much"});
  EXPECT_EQ(memory.code, 2);
  EXPECT_NE(memory.err.find("--memory"), std::string::npos) << memory.err;
  const Outcome large = troupe_command({"train", "plan", "--model", "gpt2-xl", "--layers", "200",
                                        "--batch", "1048576", "--context", "1048576"});
  EXPECT_EQ(large.code, 2);
  EXPECT_NE(large.err.find("2^58 bytes"), std::string::npos) << large.err;
  const Outcome heads = troupe_command({"train", "plan", "--heads", "7"});
  EXPECT_EQ(heads.code, 2);
  EXPECT_NE(heads.err.find("head"), std::string::npos) << heads.err;
}

}  // namespace
}  // namespace troupe::cli
