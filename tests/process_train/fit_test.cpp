// Tests train::fit on real processes: shared work, killed workers, and errors of the loop.
#include "troupe/train/train.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <csignal>
#include <stdexcept>

namespace {

using namespace std::chrono_literals;
namespace train = troupe::train;

/// Data: a batch consists of the chosen numbers.
struct Numbers {
  std::vector<float> values;
  std::uint64_t size() const { return values.size(); }
  std::vector<float> batch(std::span<const std::uint64_t> indices) const {
    std::vector<float> chosen;
    for (const std::uint64_t i : indices) chosen.push_back(values[i]);
    return chosen;
  }
};
/// A model of one weight, which moves towards the mean.
struct Mean {
  std::vector<float> weight = {0}, slope = {0};
  double forward_backward(const std::vector<float>& batch) {
    double loss = 0;
    slope[0] = 0;
    for (const float x : batch) {
      loss += 0.5 * (weight[0] - x) * (weight[0] - x) / static_cast<double>(batch.size());
      slope[0] += (weight[0] - x) / static_cast<float>(batch.size());
    }
    return loss;
  }
  friend auto fields(Mean& m) { return std::tie(m.weight); }
};
struct Plan {
  long steps = 40;
  long die_at = 0;
  long throw_at = 0;
};

void loop(train::Worker& w, Plan plan, troupe::Ref<Numbers> data) {
  Mean model;
  w.restore(model);
  for (const auto& batch : w.shard(data, {.batch = 8, .steps = plan.steps, .seed = 3})) {
    const double loss = model.forward_backward(batch);
    if (w.step() == plan.die_at && w.rank() == 1 && w.incarnation() == 0) ::raise(SIGKILL);
    if (w.step() == plan.throw_at && w.rank() == 1) throw std::runtime_error("a bug of the loop");
    w.all_reduce_mean(model.slope);
    model.weight[0] -= 0.1f * model.slope[0];
    if (w.step() % 10 == 0) w.checkpoint(model);
    w.report({.step = w.step(), .loss = loss, .extra = {{"weight", model.weight[0]}}});
  }
}

Numbers numbers() {
  Numbers made;
  for (int i = 0; i < 64; ++i) made.values.push_back(static_cast<float>(i % 8));
  return made;
}

TEST(Fit, TwoWorkersShareTheWork) {
  troupe::Session session({.cpus = 2});
  troupe::Context ctx = session.context();
  auto data = ctx.put(numbers());
  const train::Fit fit = train::fit<loop>(ctx, {.workers = 2}, Plan{}, data);
  ASSERT_EQ(fit.history().size(), 40u);
  EXPECT_EQ(fit.last().step, 40);
  EXPECT_NEAR(fit.last().extra.at("weight"), 3.5, 0.8);
  EXPECT_EQ(fit.latest_checkpoint().step, 40);
  Mean model;
  fit.restore(model);
  EXPECT_GT(model.weight[0], 2.0f);
  const train::Fit alone = train::fit<loop>(ctx, {.workers = 1}, Plan{}, data);
  EXPECT_NEAR(alone.last().extra.at("weight"), fit.last().extra.at("weight"), 1e-4)
      << "the number of workers changed what was learned";
}

TEST(Fit, AKilledWorkerIsReplacedAndTheRunContinuesBitwise) {
  troupe::Session session({.cpus = 2});
  troupe::Context ctx = session.context();
  auto data = ctx.put(numbers());
  const train::Fit calm = train::fit<loop>(ctx, {.workers = 2}, Plan{}, data);
  const train::Fit fit =
      train::fit<loop>(ctx, {.workers = 2, .max_restarts = 1}, Plan{.die_at = 25}, data);
  EXPECT_EQ(fit.restarts(), 1);
  ASSERT_EQ(fit.history().size(), 40u) << "a repeated step is counted once";
  for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(fit.history()[i].step, static_cast<long>(i) + 1);
  EXPECT_EQ(fit.latest_checkpoint().hash, calm.latest_checkpoint().hash);
  EXPECT_EQ(fit.failures().size(), 2u) << "the survivor's collective ended in an error too";
}

TEST(Fit, DeathsBeyondTheLimitEndTheRun) {
  troupe::Session session({.cpus = 2});
  troupe::Context ctx = session.context();
  auto data = ctx.put(numbers());
  EXPECT_THROW(train::fit<loop>(ctx, {.workers = 2}, Plan{.die_at = 5}, data), troupe::WorkerDied);
}

TEST(Fit, AnErrorOfTheLoopIsNotTriedAgain) {
  troupe::Session session({.cpus = 2});
  troupe::Context ctx = session.context();
  auto data = ctx.put(numbers());
  try {
    train::fit<loop>(ctx, {.workers = 2, .max_restarts = 5}, Plan{.throw_at = 5}, data);
    FAIL() << "no error";
  } catch (const troupe::TaskFailed& error) {
    EXPECT_NE(std::string(error.what()).find("a bug of the loop"), std::string::npos);
  }
}

}  // namespace
