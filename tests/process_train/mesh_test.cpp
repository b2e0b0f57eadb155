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

using namespace std::chrono_literals;
namespace train = troupe::train;

/// Far below the 30 s that a rank waits for a missing one, and far above the time of a start.
constexpr auto kAtOnce = 15s;

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

/// In the third step of a gang of two, rank 0 makes the call `zero` and rank 1 the call `one`.
struct Calls {
  std::string zero, one;
};

void make(train::Worker& w, train::Engine& engine, const train::MicroBatch& micro,
          const std::string& call) {
  float x = 1;
  if (call == "step()") engine.step(std::span(&micro, 1));
  if (call == "evaluate()") engine.evaluate(std::span(&micro, 1));
  if (call == "snapshot()") engine.snapshot(0);
  if (call == "weights_hash()") engine.weights_hash();
  if (call == "checkpoint()") w.checkpoint(engine);
  if (call == "all_reduce_sum()") w.all_reduce_sum(1.0);
  if (call == "all_reduce_mean()") w.all_reduce_mean(std::span(&x, 1));
}

void differ(train::Worker& w, const Calls& calls) {
  if (w.incarnation() > 0) throw std::runtime_error("the loop was restarted");
  troupe::kernels::Device device = troupe::kernels::cpu_device();
  train::Engine engine(
      train::models::gpt2(
          {.vocabulary = 16, .context = 8, .layers = 1, .heads = 2, .channels = 16}),
      {.dp = w.world(), .zero = 1}, w.mesh(), device, {});
  engine.initialize(1);
  std::vector<std::int32_t> tokens = {1, 5, 3, 7, 2, 6, 4, 0};
  const train::Shape shape{1, 8};
  const train::MicroBatch micro{.input = {tokens.data(), train::DType::i32, shape},
                                .targets = {tokens.data(), train::DType::i32, shape}};
  while (w.step() < 5) {
    w.next_step();
    if (w.step() == 3) make(w, engine, micro, w.rank() == 0 ? calls.zero : calls.one);
    engine.step(std::span(&micro, 1));
    w.report({.step = w.step()});
  }
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

TEST_F(GangMesh, CallsThatDifferBetweenRanksAreNamedWithoutARestart) {
  for (const char* zero : {"checkpoint()", "snapshot()", "all_reduce_sum()", "evaluate()"})
    for (const char* one : {"step()", "weights_hash()", "all_reduce_mean()"}) {
      const troupe::Time begun = troupe::steady_now();
      std::string text = "none";
      try {
        train::fit<differ>(ctx, {.workers = 2, .max_restarts = 3}, Calls{zero, one});
      } catch (const troupe::TaskFailed& error) {
        text = error.message();
      }
      const std::string names =
          std::string("rank 0 called ") + zero + " while rank 1 called " + one + ": ";
      EXPECT_NE(text.find(" threw at step 3: " + names), std::string::npos) << text;
      EXPECT_LT(troupe::steady_now() - begun, kAtOnce) << names;
    }
}

TEST_F(GangMesh, HasOneShape) {
  const std::string refusal = failure({"shape"});
  EXPECT_NE(refusal.find("another shape"), std::string::npos) << refusal;
}

}  // namespace gang_mesh
