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
    const OptimizerOptions sgd{.kind = OptimizerKind::sgd, .momentum = 0.9f};
    const Snapshot of_sgd = engine_of(context, {.dp = 2}, kSavedShape, sgd)->snapshot();
    EXPECT_NE(refusal(*engine, of_sgd).find("optimizer."), std::string::npos);
    EXPECT_TRUE(same(engine->snapshot(), before));
    EXPECT_EQ(engine->steps(), 1);
    EXPECT_EQ(refusal(*engine, before), "none");
  });
}

/// Returns the snapshot without the tensors of the optimizer.
Snapshot weights_of(Snapshot snapshot) {
  std::erase_if(snapshot.tensors,
                [](const NamedTensor& tensor) { return tensor.name.starts_with("optimizer."); });
  return snapshot;
}

TEST(Snapshots, OfWeightsAloneBeginWithMomentsOfZero) {
  for (const Layout& layout : {Layout{.dp = 2, .zero = 1}, Layout{.dp = 2, .zero = 3}})
    on_ranks(2, Wire::local, [&](RankContext& context) {
      const GptShape shape{};  // no dropout, which depends on the step
      auto engine = engine_of(context, layout, shape);
      train(*engine, context, 0, 3);
      const Snapshot weights = weights_of(engine->snapshot());
      auto old = engine_of(context, layout, shape), fresh = engine_of(context, layout, shape);
      old->restore(weights);
      EXPECT_EQ(old->steps(), 3);
      Snapshot first = weights;
      first.step = 0;
      fresh->restore(first);
      EXPECT_EQ(old->weights_hash(), engine->weights_hash());
      train(*old, context, 3, 5);
      train(*fresh, context, 3, 5);
      EXPECT_EQ(old->weights_hash(), fresh->weights_hash()) << "the step does not matter";
      const Snapshot middle = old->snapshot();
      EXPECT_EQ(middle.moments_since, 3);
      fresh->restore(middle);
      train(*old, context, 5, 6);
      train(*fresh, context, 5, 6);
      EXPECT_TRUE(same(old->snapshot(), fresh->snapshot())) << "a restored run goes on bitwise";
    });
}

TEST(Snapshots, OfWeightsAloneAreSaidOnceAndOfSomeMomentsRefused) {
  on_ranks(1, Wire::local, [](RankContext& context) {
    auto engine = engine_of(context, {});
    const Snapshot whole = engine->snapshot();
    ::testing::internal::CaptureStderr();
    engine->restore(whole);
    engine->restore(weights_of(whole));
    engine->restore(weights_of(whole));
    EXPECT_EQ(::testing::internal::GetCapturedStderr(),
              "train: the snapshot of step 0 has weights alone, so the optimizer's moments begin "
              "at 0\n");
    Snapshot some = whole;
    some.tensors.pop_back();
    EXPECT_NE(refusal(*engine, some).find(whole.tensors.back().name + " is missing"),
              std::string::npos);
    Snapshot late = whole;
    late.moments_since = 1;
    EXPECT_NE(refusal(*engine, late).find("its moments begin at step 1"), std::string::npos);
    auto sgd = engine_of(context, {}, kSavedShape, {.kind = OptimizerKind::sgd});
    EXPECT_EQ(refusal(*sgd, weights_of(whole)), "none") << "it has no moments";
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
