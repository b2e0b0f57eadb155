// Tests plans: which layouts fit, the text that says so, and the store's own numbers.
#include "troupe/train/params/plan.hpp"

#include "tests/train/params/ranks.hpp"
#include "troupe/runtime/base/error.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace troupe::train::plan_test {
namespace {

using testing::odd_model;
using testing::on_ranks;

std::int64_t activations_of(const Layout& layout) {
  return (layout.recompute == Recompute::full ? 10'000 : 100'000) / layout.dp;
}

PlannedModel odd_plan() {
  return {
      .index = [](const Layout& layout, const RankPlace&) { return odd_model(layout.dp); },
      .activations = [](const Layout& layout, const RankPlace&) { return activations_of(layout); }};
}

Plan plan_of(const Layout& layout, int moments = 2) {
  return plan(odd_model(layout.dp), layout, activations_of, {.moments = moments});
}

TEST(PlanBytes, AreThoseOfTheStore) {
  for (int dp = 1; dp <= 4; ++dp)
    for (int zero = 0; zero <= 3; ++zero)
      for (int moments = 0; moments <= 2; ++moments)
        on_ranks(dp, [&](int rank, collective::Communicator* group) {
          const Index index = odd_model(dp);
          kernels::Device device = kernels::cpu_device();
          const Store store(
              index, device,
              {.zero = zero, .dp_rank = rank, .offload = moments == 1, .moments = moments}, group);
          const Store::Bytes have = store.bytes();
          const Store::Bytes want =
              plan_of({.dp = dp,
                       .zero = zero,
                       .offload = moments == 1 ? Offload::optimizer : Offload::none},
                      moments)
                  .store;
          EXPECT_EQ(have.weights, want.weights);
          EXPECT_EQ(have.gradients, want.gradients);
          EXPECT_EQ(have.moments, want.moments);
          EXPECT_EQ(have.tied, want.tied);
          EXPECT_EQ(have.padding, want.padding);
          EXPECT_EQ(have.host, want.host);
        });
}

TEST(PlanTraffic, IsTheFormulaExactly) {
  const auto part = [](std::int64_t times, int dp) {
    return static_cast<std::uint64_t>(times * 4 * testing::kParameters * (dp - 1) / dp);
  };
  for (int dp = 2; dp <= 4; ++dp)
    for (int micro : {1, 2, 3, 4, 500}) {
      const auto traffic = [&](int zero) {
        return plan_of({.dp = dp, .zero = zero, .micro = micro}).traffic;
      };
      EXPECT_EQ(traffic(0).payload(), part(2, dp));
      EXPECT_EQ(traffic(1).payload(), 2 * part(1, dp));
      EXPECT_EQ(traffic(2).reduce_scatter, part(micro, dp));
      EXPECT_EQ(traffic(2).all_gather, part(1, dp));
      EXPECT_EQ(traffic(3).reduce_scatter, part(micro, dp));
      EXPECT_EQ(traffic(0).norm, 2u * 8 * static_cast<unsigned>(dp - 1) / dp) << "the loss";
      EXPECT_EQ(traffic(1).norm, traffic(3).norm);
    }
  EXPECT_EQ(plan_of({.zero = 3}).traffic.payload(), 0u) << "one rank";
}

TEST(Plans, ThatFitAreAllThatFitCheapestFirst) {
  const std::vector<Plan> all = plans_that_fit(odd_plan(), {.memory = 1 << 30, .ranks = {1, 2}});
  ASSERT_EQ(all.size(), 4u + 16u) << "one rank has nothing to share";
  EXPECT_EQ(layout_text(all[0].layout), "dp=1 zero=0");
  EXPECT_EQ(layout_text(all[1].layout), "dp=1 zero=0 recompute=full");
  EXPECT_EQ(layout_text(all[2].layout), "dp=1 zero=0 offload=optimizer");
  EXPECT_EQ(layout_text(all[4].layout), "dp=2 zero=0");
  EXPECT_EQ(layout_text(all[7].layout), "dp=2 zero=3");
  EXPECT_EQ(layout_text(all[19].layout), "dp=2 zero=3 recompute=full offload=optimizer");

  // Each plan fits into its own bytes and not into one byte less.
  for (const Plan& one : all) {
    const auto has = [&](std::int64_t memory) {
      const std::vector<Plan> fitting =
          plans_that_fit(odd_plan(), {.memory = memory, .ranks = {one.layout.dp}});
      return std::any_of(fitting.begin(), fitting.end(), [&](const Plan& plan) {
        return layout_text(plan.layout) == layout_text(one.layout);
      });
    };
    EXPECT_TRUE(has(one.device_bytes())) << layout_text(one.layout);
    EXPECT_FALSE(has(one.device_bytes() - 1)) << layout_text(one.layout);
  }
  EXPECT_TRUE(plans_that_fit(odd_plan(), {.memory = 1000, .ranks = {1, 2, 4}}).empty());
}

TEST(Plans, HostMemoryIsALimitOfItsOwn) {
  const std::vector<Plan> fitting =
      plans_that_fit(odd_plan(), {.memory = 1 << 30, .host = 0, .ranks = {2}});
  EXPECT_EQ(fitting.size(), 8u);
  for (const Plan& one : fitting) EXPECT_EQ(one.layout.offload, Offload::none);
}

TEST(Plans, AreRefusedForAnIndexOfAnotherLayout) {
  EXPECT_THROW(plan(odd_model(2), {.dp = 3}, activations_of), InvalidArgument);
  EXPECT_THROW(plan(Index(), {}, activations_of), InvalidArgument);
  EXPECT_THROW(plan(odd_model(1), {.zero = 4}, activations_of), InvalidArgument);
}

TEST(Plans, OfMoreThanA64BitNumberAreRefused) {
  const auto index_of = [](std::int64_t units, std::int64_t size) {
    Index index;
    for (std::int64_t u = 0; u < units; ++u)
      index.add(index.begin_unit(""), std::to_string(u), {size}, Group::decay);
    return index;
  };
  Index most = index_of(15, std::int64_t{1} << 48), more = index_of(17, std::int64_t{1} << 48);
  EXPECT_THROW(more.seal({.dp = 2}), InvalidArgument);
  most.seal({.dp = 2});
  const auto none = [](const Layout&) { return std::int64_t{0}; };
  EXPECT_GT(plan(most, {.dp = 2}, none).device_bytes(), std::int64_t{1} << 54);
  EXPECT_THROW(plan(most, {.dp = 2, .zero = 3, .micro = 1 << 14}, none), InvalidArgument);
}

TEST(PlanText, ATableHasALineForEachPlanInColumns) {
  const std::vector<Plan> plans = {plan_of({.dp = 2, .zero = 1}), plan_of({.dp = 2, .zero = 3})};
  const std::string text = table(plans);
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].size(), lines[1].size());
  EXPECT_EQ(lines[0].size(), lines[2].size());
  EXPECT_NE(lines[0].find("gradients"), std::string::npos);
  EXPECT_NE(lines[1].find(size_text(plans[0].store.weights)), std::string::npos);
  EXPECT_NE(lines[2].find(size_text(plans[1].device_bytes())), std::string::npos);
}

TEST(PlanText, AnOutOfMemorySentenceSaysWhatIsNeededAndWhatFits) {
  const Plan wanted = plan_of({.dp = 2});
  const std::vector<Plan> fitting =
      plans_that_fit(odd_plan(), {.memory = wanted.device_bytes() - 1, .ranks = {2}});
  const std::string text = memory_sentence(wanted, wanted.device_bytes() - 1, fitting);
  EXPECT_EQ(text.find("dp=2 zero=0 needs " + size_text(wanted.device_bytes())), 0u) << text;
  EXPECT_NE(text.find("activations " + size_text(wanted.activations)), std::string::npos) << text;
  EXPECT_NE(text.find("these fit: dp=2 zero=1 ("), std::string::npos) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_NE(memory_sentence(wanted, 0, {}).find("no other layout fits"), std::string::npos);
}

TEST(PlanText, SizesHaveTheirUnit) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(1023), "1023 B");
  EXPECT_EQ(size_text(1536), "1.50 KiB");
  EXPECT_EQ(size_text(475 << 20), "475.0 MiB");
  EXPECT_EQ(size_text(std::int64_t{3} << 40), "3.00 TiB");
  EXPECT_EQ(size_text(1020 << 10), "1020 KiB");
}

}  // namespace
}  // namespace troupe::train::plan_test
