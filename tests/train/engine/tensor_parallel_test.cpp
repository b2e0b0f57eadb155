// Tests tensor and sequence parallelism in the engine: close to one rank, the same on all ranks,
// and the same bits for every zero and every number of reductions.
#include "tests/train/engine/ranks.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

namespace troupe::train::testing {
namespace {

Experiment divided_run(const Layout& layout, float dropout = 0) {
  // A vocabulary that neither 2 nor 4 divides, and a number of heads that both divide.
  Experiment e{.layout = layout, .ignored = 0.3};
  e.shape.heads = 4;
  e.shape.dropout = dropout;
  return e;
}

double most_apart(const Record& a, const Record& b) {
  double difference = 0;
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    difference = std::max(difference, std::abs(a.losses[i] / b.losses[i] - 1));
    difference = std::max(difference, std::abs(a.norms[i] / b.norms[i] - 1));
  }
  return difference;
}

std::string text_of_layout(const Layout& layout) {
  return "dp=" + std::to_string(layout.dp) + " tp=" + std::to_string(layout.tp) +
         " zero=" + std::to_string(layout.zero) + " m=" + std::to_string(layout.micro) +
         (layout.sequence ? " sequence" : "");
}

class TensorParallel : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(kernels::use_blas(kernels::Blas::builtin)); }
};

// weights_hash() refuses replicated tensors that differ over tp, so their hashes are equal too.
TEST_F(TensorParallel, TwentyLossesAreThoseOfOneRankAndReplicatedTensorsStayTheSame) {
  for (const float dropout : {0.0f, 0.1f}) {
    Experiment plain = divided_run({}, dropout);
    plain.steps = 20;
    plain.batch = 16;
    const Record alone = run(plain).front();
    EXPECT_LT(alone.losses.back(), alone.losses.front() - 0.1) << "it learns";
    for (const Layout& layout : {Layout{.tp = 2}, Layout{.tp = 2, .sequence = true},
                                 Layout{.tp = 4}, Layout{.tp = 4, .micro = 2, .sequence = true},
                                 Layout{.dp = 2, .tp = 2, .sequence = true}}) {
      Experiment e = plain;
      e.layout = layout;
      const std::vector<Record> ranks = run(e);
      EXPECT_LT(most_apart(ranks.front(), alone), 1e-5)
          << text_of_layout(layout) << " dropout " << dropout;
      for (const Record& record : ranks) EXPECT_EQ(record, ranks.front()) << text_of_layout(layout);
    }
  }
}

TEST_F(TensorParallel, Zero1GivesTheBitsOfDataParallel) {
  for (const bool sequence : {false, true})
    for (const int micro : {1, 2}) {
      const Layout layout{.dp = 2, .tp = 2, .micro = micro, .sequence = sequence};
      const Record plain = run(divided_run(layout, 0.1f)).front();
      Layout shared = layout;
      shared.zero = 1;
      for (const Record& record : run(divided_run(shared, 0.1f)))
        EXPECT_EQ(record, plain) << text_of_layout(layout);
      for (const double norm : plain.norms) EXPECT_GT(norm, 0.25) << "the clip is active";
    }
}

TEST_F(TensorParallel, Zero2And3GiveTheBitsOfDataParallelWithOneMicroBatch) {
  const Layout layout{.dp = 2, .tp = 2, .sequence = true};
  const Record plain = run(divided_run(layout)).front();
  for (const int zero : {2, 3}) {
    Layout shared = layout;
    shared.zero = zero;
    for (const Record& record : run(divided_run(shared))) EXPECT_EQ(record, plain) << zero;
  }
}

TEST_F(TensorParallel, ByDataParallelIsCloseToDataParallelAlone) {
  const Record plain = run(divided_run({.dp = 2})).front();
  for (const int zero : {0, 1, 3})
    EXPECT_LT(most_apart(run(divided_run({.dp = 2, .tp = 2, .zero = zero})).front(), plain), 1e-5)
        << zero;
}

TEST_F(TensorParallel, RecomputationAndOffloadChangeNothing) {
  const Layout layout{.dp = 2, .tp = 2, .zero = 1, .sequence = true};
  const Record plain = run(divided_run(layout)).front();
  for (const Recompute recompute : {Recompute::full, Recompute::selective}) {
    Layout again = layout;
    again.recompute = recompute;
    again.offload = Offload::optimizer;
    EXPECT_EQ(run(divided_run(again)).front(), plain);
  }
}

TEST_F(TensorParallel, SharedMemoryGivesTheBitsOfThreads) {
  Experiment e = divided_run({.dp = 2, .tp = 2, .zero = 1, .sequence = true});
  const Record threads = run(e).front();
  e.wire = Wire::shm;
  for (const Record& record : run(e)) EXPECT_EQ(record, threads);
}

struct Trained {
  Snapshot start, end;
  std::uint64_t hash = 0;
};

/// Trains in a layout; expects the same results on every rank.
Trained train_in(const Layout& layout, const Snapshot* from = nullptr, int steps = 2) {
  const Experiment e = divided_run(layout, 0.1f);
  std::vector<Trained> all(static_cast<std::size_t>(layout.ranks()));
  on_mesh(mesh_of(layout), Wire::local, [&](RankContext& context) {
    Engine engine(gpt(e.shape), layout, context.mesh, context.device, e.optimizer);
    engine.initialize(1);
    if (from != nullptr) engine.restore(*from);
    Trained& trained = all[static_cast<std::size_t>(context.mesh.rank())];
    trained.start = engine.snapshot();
    for (int step = 0; step < steps; ++step) {
      std::vector<Rows> parts =
          share_of(e.shape, step, 8, context.mesh.dp_rank, layout.dp, layout.micro);
      engine.step(micros_of(parts));
    }
    trained.end = engine.snapshot();
    trained.hash = engine.weights_hash();
  });
  for (const Trained& each : all) {
    EXPECT_EQ(hash_of(each.end), hash_of(all.front().end));
    EXPECT_EQ(each.hash, all.front().hash);
  }
  return std::move(all.front());
}

TEST_F(TensorParallel, InitialWeightsAreThoseOfOneRankInEveryLayout) {
  const Trained plain = train_in({}, nullptr, 0);
  for (const Layout& layout :
       {Layout{.tp = 2}, Layout{.tp = 4, .sequence = true}, Layout{.dp = 2, .tp = 2, .zero = 3}}) {
    const Trained other = train_in(layout, nullptr, 0);
    EXPECT_EQ(difference(other.start.tensors, plain.start.tensors), "");
    EXPECT_EQ(hash_of(other.start), hash_of(plain.start)) << text_of_layout(layout);
    EXPECT_EQ(other.hash, plain.hash) << text_of_layout(layout);
  }
}

TEST_F(TensorParallel, ASnapshotGoesThroughAnyLayoutAndBackByteByByte) {
  const Trained start = train_in({.dp = 4, .zero = 1});
  EXPECT_EQ(start.end.step, 2);
  for (const Layout& layout :
       {Layout{.dp = 2, .tp = 2}, Layout{.dp = 2, .tp = 2, .zero = 3, .sequence = true},
        Layout{.tp = 4, .offload = Offload::optimizer}, Layout{.tp = 2}, Layout{}}) {
    const Trained there = train_in(layout, &start.end, 0);
    EXPECT_EQ(hash_of(there.start), hash_of(start.end)) << text_of_layout(layout);
    EXPECT_EQ(there.hash, start.hash) << text_of_layout(layout);
    const Trained back = train_in({.dp = 4, .zero = 1}, &there.start, 0);
    EXPECT_EQ(hash_of(back.start), hash_of(start.end)) << text_of_layout(layout);
  }
}

TEST_F(TensorParallel, ARestoredRunGoesOnBitwise) {
  const Layout layout{.dp = 2, .tp = 2, .zero = 1, .sequence = true};
  const Trained begin = train_in(layout, nullptr, 0), whole = train_in(layout, &begin.end, 2);
  EXPECT_EQ(hash_of(train_in(layout, &begin.end, 2).end), hash_of(whole.end));
  EXPECT_NE(hash_of(whole.end), hash_of(begin.end));
}

TEST_F(TensorParallel, EvaluationAndPredictionsAreThoseOfOneRank) {
  const Experiment e = divided_run({});
  Rows rows = rows_of(e.shape, 0, 0, 2);
  double alone = 0;
  std::vector<float> logits;
  on_ranks(1, Wire::local, [&](RankContext& context) {
    Engine engine(gpt(e.shape), {}, context.mesh, context.device, e.optimizer);
    engine.initialize(1);
    const MicroBatch micro = rows.micro();
    alone = engine.evaluate(std::span(&micro, 1));
    const TensorView y = engine.predict(micro.input);
    logits.assign(y.as<float>(), y.as<float>() + y.count());
  });
  for (const Layout& layout :
       {Layout{.tp = 2}, Layout{.tp = 4, .sequence = true}, Layout{.dp = 2, .tp = 2, .zero = 3}})
    on_mesh(mesh_of(layout), Wire::local, [&](RankContext& context) {
      Engine engine(gpt(e.shape), layout, context.mesh, context.device, e.optimizer);
      engine.initialize(1);
      const MicroBatch micro = rows.micro();
      EXPECT_NEAR(engine.evaluate(std::span(&micro, 1)) / alone, 1, 1e-6) << text_of_layout(layout);
      const TensorView y = engine.predict(micro.input);
      ASSERT_EQ(static_cast<std::size_t>(y.count()), logits.size()) << y.shape.text();
      for (std::size_t i = 0; i < logits.size(); ++i)
        ASSERT_NEAR(y.as<float>()[i], logits[i], 1e-5) << text_of_layout(layout) << " logit " << i;
    });
}

}  // namespace
}  // namespace troupe::train::testing
