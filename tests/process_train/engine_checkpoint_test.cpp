// Tests an engine in a gang. Its checkpoints bring it through deaths, into gangs of other
// layouts, and back into the program. The gang's layout comes from its options.
#include "tests/process_train/tiny.hpp"
#include "troupe/train/train.hpp"
#include "troupe/troupe.hpp"

#include <gtest/gtest.h>
#include <csignal>
#include <map>
#include <string>

namespace engine_checkpoint {

using namespace std::chrono_literals;
namespace train = troupe::train;
using tiny::kContext;
using tiny::Rows;

train::Model model(std::int64_t channels = 16) {
  return train::models::gpt2({.vocabulary = 16,
                              .context = kContext,
                              .layers = 2,
                              .heads = 2,
                              .channels = channels,
                              .dropout = 0.1f});
}

struct Plan {
  long steps = 12, die_at = 0;
  train::SavedModel from;  ///< the checkpoint from which the first gang starts
};

/// Makes a checkpoint every five steps, of the engine and a number.
void loop(train::Worker& w, const Plan& plan, const Rows& rows) {
  troupe::kernels::Device device = troupe::kernels::cpu_device();
  train::Engine engine(model(), w.layout(), w.mesh(), device, {});
  engine.initialize(1);
  long saves = 0;
  if (!w.restore(engine, saves) && plan.from)
    train::load_model(w.context(), plan.from, 10s, engine, saves);
  for (train::Batch batch : w.shard(rows, {.batch = 8, .steps = plan.steps, .seed = 3})) {
    if (w.step() == plan.die_at && w.rank() == 1 && w.incarnation() == 0) ::raise(SIGKILL);
    const train::StepResult result =
        engine.step(train::micro_batches(batch, w.layout().micro), {.rate = 1e-2f});
    if (w.step() % 5 == 0) w.checkpoint(engine, ++saves);
    w.report({.step = w.step(),
              .loss = result.loss,
              .extra = {{"weights", static_cast<double>(engine.weights_hash() >> 11)},
                        {"engine's steps", static_cast<double>(engine.steps())}}});
  }
}

struct EngineCheckpoint : testing::Test {
  troupe::Session session{{.cpus = 2}};
  troupe::Context ctx = session.context();

  train::Fit fit(const train::FitOptions& options, const Plan& plan = {}) {
    return train::fit<loop>(ctx, options, plan, Rows{});
  }
};

TEST_F(EngineCheckpoint, AKilledWorkersGangGoesOnBitwise) {
  for (const train::Layout& layout :
       {train::Layout{.zero = 1, .micro = 2}, {.zero = 3}, {.tp = 2}, {.pp = 2, .micro = 2}}) {
    const train::FitOptions options{.workers = 2, .layout = layout, .max_restarts = 1};
    const train::Fit calm = fit(options), hit = fit(options, {.die_at = 8});
    EXPECT_EQ(hit.restarts(), 1);
    EXPECT_EQ(hit.last().extra.at("weights"), calm.last().extra.at("weights"));
    EXPECT_EQ(hit.latest_checkpoint().hash, calm.latest_checkpoint().hash);
  }
}

TEST_F(EngineCheckpoint, StartsAGangOfAnotherSizeAndLayout) {
  const train::Fit first = fit({.workers = 2, .layout = {.tp = 2, .micro = 2}}, {.steps = 5});
  const train::SavedModel& from = first.latest_checkpoint();
  const train::Fit alone = fit({.workers = 1}, {.steps = 5, .from = from});
  EXPECT_LT(alone.last().loss, first.last().loss);
  for (const train::FitOptions& options :
       {train::FitOptions{.workers = 2, .layout = {.zero = 1}},
        {.workers = 3, .layout = {.zero = 3, .recompute = train::Recompute::full}},
        {.workers = 2, .layout = {.pp = 2, .micro = 2}},
        {.workers = 4, .layout = {.tp = 2, .zero = 1, .sequence = true}}}) {
    const train::Fit rest = fit(options, {.steps = 5, .from = from});
    EXPECT_EQ(rest.last().extra.at("engine's steps"), 10);
    EXPECT_NEAR(rest.last().loss / alone.last().loss, 1, 1e-5)
        << options.workers.least << " workers, tp " << options.layout.tp << ", pp "
        << options.layout.pp;
  }
}

TEST_F(EngineCheckpoint, ComesBackAsAnEngineAndAsASnapshot) {
  const train::Fit run = fit({.workers = 2, .layout = {.zero = 3}}, {.steps = 10});
  troupe::collective::Mesh alone;
  troupe::kernels::Device device = troupe::kernels::cpu_device();
  train::Engine engine(model(), {}, alone, device, {});
  train::Snapshot snapshot;
  long saves = 0;
  const std::uint64_t hash = train::load_model(ctx, run.latest_checkpoint(), 10s, engine, saves);
  EXPECT_EQ(hash, run.latest_checkpoint().hash) << "what the engine holds is what was saved";
  EXPECT_EQ(static_cast<double>(engine.weights_hash() >> 11), run.last().extra.at("weights"));
  EXPECT_EQ(engine.steps(), 10);
  EXPECT_EQ(saves, 2);
  run.restore(snapshot, saves);
  EXPECT_EQ(snapshot.step, run.best_checkpoint().step);
  EXPECT_EQ(train::difference(snapshot.tensors, engine.snapshot().tensors), "");
}

TEST_F(EngineCheckpoint, OfAnotherModelIsRefusedByTensorAndChangesNothing) {
  troupe::collective::Mesh alone;
  troupe::kernels::Device device = troupe::kernels::cpu_device();
  train::Engine small(model(), {}, alone, device, {}), wide(model(32), {}, alone, device, {});
  small.initialize(1);
  wide.initialize(1);
  const train::SavedModel saved = train::save_model(ctx, 1, wide);
  const std::uint64_t before = small.weights_hash();
  std::string refusal;
  try {
    train::load_model(ctx, saved, 10s, small);
  } catch (const troupe::InvalidArgument& e) {
    refusal = e.message();
  }
  EXPECT_NE(refusal.find("tensor transformer.wte.weight is f32[16, 32]"), std::string::npos)
      << refusal;
  std::vector<float> floats;
  EXPECT_THROW(train::load_model(ctx, saved, 10s, floats), troupe::InvalidArgument);
  EXPECT_EQ(small.weights_hash(), before);
  EXPECT_EQ(small.steps(), 0);
}

/// Reports the sum of the ranks' samples of a step, and the layout.
void look(train::Worker& w, const Rows& rows) {
  for (const train::Batch& batch : w.shard(rows, {.batch = 8, .steps = 1})) {
    const std::int64_t got = w.all_reduce_sum(batch.rows);
    w.report({.step = w.step(),
              .loss = 0,
              .extra = {{"rows", static_cast<double>(got)},
                        {"dp", w.layout().dp},
                        {"tp", w.layout().tp},
                        {"pp", w.layout().pp}}});
  }
}

TEST_F(EngineCheckpoint, ALayoutsDataParallelRanksDivideTheBatchAndTheOthersShareIt) {
  const auto seen = [&](const train::FitOptions& options) {
    return train::fit<look>(ctx, options, Rows{}).last().extra;
  };
  using Extra = std::map<std::string, double>;
  EXPECT_EQ(seen({.workers = 2}), (Extra{{"rows", 8}, {"dp", 2}, {"tp", 1}, {"pp", 1}}));
  EXPECT_EQ(seen({.workers = 4, .layout = {.tp = 2}}),
            (Extra{{"rows", 16}, {"dp", 2}, {"tp", 2}, {"pp", 1}}));
  EXPECT_EQ(seen({.workers = 3, .layout = {.pp = 3}}),
            (Extra{{"rows", 24}, {"dp", 1}, {"tp", 1}, {"pp", 3}}));
}

TEST_F(EngineCheckpoint, ALayoutThatDoesNotDivideTheWorkersIsRefused) {
  for (const train::FitOptions& options : {train::FitOptions{.workers = 3, .layout = {.tp = 2}},
                                           {.workers = 2, .layout = {.dp = 3}},
                                           {.workers = 2, .layout = {.pp = 0}}})
    EXPECT_THROW(train::fit<look>(ctx, options, Rows{}), troupe::InvalidArgument);
}

}  // namespace engine_checkpoint
