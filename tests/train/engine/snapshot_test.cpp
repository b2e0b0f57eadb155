// Tests that a snapshot depends on no layout: a run goes on bit by bit, in the same layout or
// another one.
#include "tests/train/engine/ranks.hpp"

namespace troupe::train::testing {
namespace {

const GptShape kSavedShape{.dropout = 0.1f};

std::unique_ptr<Engine> engine_of(RankContext& context, const Layout& layout,
                                  const GptShape& shape = kSavedShape,
                                  const OptimizerOptions& optimizer = {}) {
  auto engine =
      std::make_unique<Engine>(gpt(shape), layout, context.mesh, context.device, optimizer);
  engine->initialize(1);
  return engine;
}

std::vector<StepResult> train(Engine& engine, RankContext& context, int first, int end) {
  std::vector<StepResult> results;
  for (int step = first; step < end; ++step) {
    std::vector<Rows> parts = share_of(kSavedShape, step, 8, context.mesh.dp_rank,
                                       engine.layout().dp, engine.layout().micro);
    results.push_back(engine.step(micros_of(parts)));
  }
  return results;
}

bool same(const Snapshot& a, const Snapshot& b) {
  if (a.step != b.step || a.seed != b.seed || !difference(a.tensors, b.tensors).empty())
    return false;
  for (std::size_t i = 0; i < a.tensors.size(); ++i)
    if (a.tensors[i].bytes != b.tensors[i].bytes) return false;
  return true;
}

/// Returns the snapshot after two steps in a layout; it must be the same on every rank.
Snapshot snapshot_after_two(const Layout& layout) {
  std::vector<Snapshot> all(static_cast<std::size_t>(layout.dp));
  on_ranks(layout.dp, Wire::local, [&](RankContext& context) {
    auto engine = engine_of(context, layout);
    train(*engine, context, 0, 2);
    all[static_cast<std::size_t>(context.mesh.dp_rank)] = engine->snapshot();
  });
  for (const Snapshot& each : all) EXPECT_TRUE(same(each, all.front()));
  return all.front();
}

TEST(Snapshots, ARestoredRunGoesOnBitwise) {
  for (const int zero : {0, 1, 2, 3}) {
    const Layout layout{.dp = 2, .zero = zero, .micro = 2};
    const Snapshot middle = snapshot_after_two(layout);
    EXPECT_EQ(middle.step, 2);
    on_ranks(2, Wire::local, [&](RankContext& context) {
      auto whole = engine_of(context, layout);
      const std::vector<StepResult> all = train(*whole, context, 0, 5);
      Engine restored(gpt(kSavedShape), layout, context.mesh, context.device, {});
      Engine* again = &restored;  // without initialize(): the snapshot contains dropout's seed
      again->restore(middle);
      const std::vector<StepResult> rest = train(*again, context, 2, 5);
      for (std::size_t i = 0; i < rest.size(); ++i) {
        EXPECT_EQ(rest[i].loss, all[i + 2].loss);
        EXPECT_EQ(rest[i].norm, all[i + 2].norm);
        EXPECT_EQ(rest[i].step, all[i + 2].step);
      }
      EXPECT_EQ(again->weights_hash(), whole->weights_hash());
      EXPECT_TRUE(same(again->snapshot(), whole->snapshot()));
    });
  }
}

TEST(Snapshots, GoThroughAnyLayoutAndBackByteByByte) {
  const Snapshot start = snapshot_after_two({.dp = 2, .zero = 1});
  for (const Layout& layout :
       {Layout{}, Layout{.dp = 3, .zero = 3}, Layout{.dp = 4, .zero = 2},
        Layout{.dp = 2, .zero = 1, .offload = Offload::optimizer}, Layout{.dp = 5}})
    on_ranks(layout.dp, Wire::local, [&](RankContext& context) {
      auto engine = engine_of(context, layout);
      EXPECT_FALSE(same(engine->snapshot(), start));
      engine->restore(start);
      EXPECT_TRUE(same(engine->snapshot(), start));
      EXPECT_EQ(engine->steps(), 2);
    });
}

std::string refusal(Engine& engine, const Snapshot& snapshot) {
  try {
    engine.restore(snapshot);
  } catch (const InvalidArgument& e) {
    return e.message();
  }
  return "none";
}

TEST(Snapshots, OfAnotherModelAreRefusedByTensorAndChangeNothing) {
  on_ranks(2, Wire::local, [&](RankContext& context) {
    auto engine = engine_of(context, {.dp = 2, .zero = 3});
    train(*engine, context, 0, 1);
    const Snapshot before = engine->snapshot();
    GptShape wide = kSavedShape;
    wide.context = 24;
    const Snapshot other = engine_of(context, {.dp = 2}, wide)->snapshot();
    EXPECT_NE(refusal(*engine, other).find("transformer.wpe.weight"), std::string::npos);
    Snapshot cut = before;
    cut.tensors[3].bytes.pop_back();
    EXPECT_NE(refusal(*engine, cut).find(cut.tensors[3].name), std::string::npos);
    Snapshot renamed = before;
    renamed.tensors.back().name = "else";
    EXPECT_NE(refusal(*engine, renamed).find(before.tensors.back().name), std::string::npos);
    const Snapshot of_sgd =
        engine_of(context, {.dp = 2}, kSavedShape, {.kind = OptimizerKind::sgd})->snapshot();
    EXPECT_NE(refusal(*engine, of_sgd).find("optimizer."), std::string::npos);
    EXPECT_TRUE(same(engine->snapshot(), before));
    EXPECT_EQ(engine->steps(), 1);
    EXPECT_EQ(refusal(*engine, before), "none");
  });
}

TEST(Snapshots, InitializeBeginsAnew) {
  on_ranks(1, Wire::local, [&](RankContext& context) {
    auto engine = engine_of(context, {});
    const Snapshot before = engine->snapshot();
    train(*engine, context, 0, 2);
    EXPECT_FALSE(same(engine->snapshot(), before));
    engine->initialize(1);
    EXPECT_TRUE(same(engine->snapshot(), before));
  });
}

}  // namespace
}  // namespace troupe::train::testing
