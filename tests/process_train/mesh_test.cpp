// Tests a gang's mesh. An engine trains over it. Errors in it end or restart the run, as errors
// of the loop's own operations do.
#include "troupe/train/engine/engine.hpp"
#include "troupe/train/models/models.hpp"
#include "troupe/train/train.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <csignal>
#include <stdexcept>
#include <string>

namespace gang_mesh {

namespace train = troupe::train;

struct Plan {
  std::string what;
  int zero = 1;
};

/// Runs ten steps of a small model. `plan` says how rank 1 fails in the sixth step of the first
/// gang.
void loop(train::Worker& w, const Plan& plan) {
  troupe::collective::Mesh& mesh = w.mesh({.dp = w.world()});
  if (plan.what == "shape") w.mesh({.tp = w.world()});
  troupe::kernels::Device device = troupe::kernels::cpu_device();
  train::Engine engine(
      train::models::gpt2(
          {.vocabulary = 16, .context = 8, .layers = 1, .heads = 2, .channels = 16}),
      {.dp = w.world(), .zero = plan.zero}, mesh, device, {});
  engine.initialize(1);
  std::vector<std::int32_t> tokens = {1, 5, 3, 7, 2, 6, 4, w.rank()}, targets = tokens;
  const train::Shape shape{1, 8};
  const train::MicroBatch micro{.input = {tokens.data(), train::DType::i32, shape},
                                .targets = {targets.data(), train::DType::i32, shape}};
  double loss = 0;
  while (w.step() < 10) {
    w.next_step();
    if (w.rank() == 1 && w.step() == 6 && w.incarnation() == 0) {
      if (plan.what == "kill") ::raise(SIGKILL);
      if (plan.what == "return") return;
      if (plan.what == "throw") throw std::runtime_error("a bug of the loop");
      if (plan.what == "cancel")
        throw troupe::Cancelled(troupe::Code::cancelled, "a get() of the loop");
    }
    loss = engine.step(std::span(&micro, 1)).loss;
  }
  const std::uint64_t hash = engine.weights_hash();
  w.report({.step = w.step(), .loss = loss, .extra = {{"hash", static_cast<double>(hash >> 12)}}});
}

struct GangMesh : testing::Test {
  troupe::Session session{{.cpus = 2}};
  troupe::Context ctx = session.context();

  std::string failure(const Plan& plan, int max_restarts = 0) {
    try {
      train::fit<loop>(ctx, {.workers = 2, .max_restarts = max_restarts}, plan);
    } catch (const troupe::TaskFailed& error) {
      return error.message();
    }
    return "none";
  }
};

TEST_F(GangMesh, AnEngineTrainsOverIt) {
  const train::Fit zero1 = train::fit<loop>(ctx, {.workers = 2}, Plan{});
  const train::Fit zero3 = train::fit<loop>(ctx, {.workers = 2}, Plan{.zero = 3});
  const train::Fit one = train::fit<loop>(ctx, {.workers = 1}, Plan{});
  EXPECT_EQ(zero1.last().step, 10);
  EXPECT_LT(zero1.last().loss, 2.75);
  EXPECT_EQ(zero1.last().extra.at("hash"), zero3.last().extra.at("hash"));
  EXPECT_NE(zero1.last().extra.at("hash"), one.last().extra.at("hash"));  // of other tokens
}

TEST_F(GangMesh, ADeathInItRestartsTheGang) {
  const train::Fit fit = train::fit<loop>(ctx, {.workers = 2, .max_restarts = 1}, Plan{"kill"});
  EXPECT_EQ(fit.restarts(), 1);
  EXPECT_EQ(fit.last().step, 10);
}

TEST_F(GangMesh, ARankThatReturnsOrThrowsIsNamed) {
  const std::string returned = failure({"return"}), threw = failure({"throw"});
  EXPECT_NE(returned.find("worker 1 returned from the loop at step 6"), std::string::npos)
      << returned;
  EXPECT_NE(threw.find("the loop of worker 1 threw at step 6: a bug of the loop"),
            std::string::npos)
      << threw;
}

TEST_F(GangMesh, AnErrorThatLooksLikeItsOwnEndsTheRunWithoutARestart) {
  const std::string threw = failure({"cancel"}, 1);
  EXPECT_NE(threw.find("the loop of worker 1 threw at step 6: "), std::string::npos) << threw;
  EXPECT_NE(threw.find("a get() of the loop"), std::string::npos) << threw;
}

TEST_F(GangMesh, HasOneShape) {
  const std::string refusal = failure({"shape"});
  EXPECT_NE(refusal.find("another shape"), std::string::npos) << refusal;
}

}  // namespace gang_mesh
