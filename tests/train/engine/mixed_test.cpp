// Tests bf16 and f16 runs: close to f32, with equal bits in layouts that give equal bits in f32.
// Also tests bytes, traffic, snapshots, and the loss scale.
#include "tests/golden/golden_run.hpp"
#include "tests/paths.hpp"
#include "tests/train/engine/ranks.hpp"
#include "troupe/kernels/half/half.hpp"
#include "troupe/train/engine/model_plan.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace troupe::train::testing {
namespace {

constexpr DType kNarrowTypes[] = {DType::bf16, DType::f16};

std::vector<StepResult> golden_steps(const Layout& layout) {
  const golden::Text text(paths::golden());
  std::vector<StepResult> results;
  on_mesh(mesh_of(layout), Wire::local, [&](RankContext& context) {
    Engine engine(golden::model(), layout, context.mesh, context.device, golden::optimizer());
    engine.initialize(1);
    engine.restore(golden::start(engine.snapshot()));
    for (std::size_t step = 0; step < golden::kSteps; ++step) {
      golden::Share share = text.share(step, context.mesh.dp_rank, layout.dp, layout.micro);
      const StepResult result = engine.step(share.micros());
      if (context.mesh.rank() == 0) results.push_back(result);
    }
  });
  return results;
}

TEST(MixedGoldenRun, IsWithinTwoPercentOfF64AndNotF32ItselfInAnyMesh) {
  for (const DType type : kNarrowTypes)
    for (const Layout& layout :
         {Layout{.compute = type}, Layout{.micro = 2, .compute = type},
          Layout{.tp = 2, .compute = type}, Layout{.tp = 2, .sequence = true, .compute = type},
          Layout{.pp = 2, .micro = 2, .compute = type},
          Layout{
              .dp = 2, .tp = 2, .pp = 2, .zero = 1, .micro = 2, .sequence = true, .compute = type},
          Layout{.dp = 2, .zero = 3, .compute = type, .recompute = Recompute::selective}}) {
      const std::vector<StepResult> steps = golden_steps(layout);
      SCOPED_TRACE(layout_text(layout));
      ASSERT_EQ(steps.size(), golden::kSteps);
      double most = 0;
      for (std::size_t i = 0; i < steps.size(); ++i) {
        EXPECT_TRUE(steps[i].applied);
        EXPECT_EQ(steps[i].scale, type == DType::f16 ? 65536 : 1);
        const double error = std::abs(steps[i].loss / golden::kLosses[i] - 1);
        EXPECT_LE(error, 2e-2) << "loss of step " << i + 1;
        EXPECT_NEAR(steps[i].norm / golden::kNorms[i], 1, 5e-2) << "norm of step " << i + 1;
        most = std::max(most, error);
      }
      EXPECT_GT(most, 1e-6) << "16 bits were in use";
    }
}

class MixedEquality : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override { ASSERT_TRUE(kernels::use_blas(kernels::Blas::builtin)); }

  static Experiment with(Layout layout, Wire wire = Wire::local) {
    layout.compute = GetParam();
    Experiment e;
    e.shape.dropout = 0.1f;
    e.layout = layout;
    e.wire = wire;
    e.steps = 3;
    return e;
  }
  static void expect_equal(const Experiment& a, const Experiment& b) {
    const std::vector<Record> of_a = run(a), of_b = run(b);
    for (const Record& record : of_a) EXPECT_EQ(record, of_a.front());
    for (const Record& record : of_b) EXPECT_EQ(record, of_a.front());
    for (const double norm : of_a.front().norms) EXPECT_GT(norm, a.optimizer.max_norm);
  }
};

TEST_P(MixedEquality, Zero1GivesTheBitsOfDataParallelForAnyMicroBatches) {
  for (const int micro : {1, 3})
    expect_equal(with({.dp = 2, .micro = micro}), with({.dp = 2, .zero = 1, .micro = micro}));
  expect_equal(with({.dp = 3, .micro = 2}, Wire::shm),
               with({.dp = 3, .zero = 1, .micro = 2}, Wire::shm));
}

TEST_P(MixedEquality, Zero2And3GiveTheBitsOfDataParallelWithOneMicroBatch) {
  for (const int zero : {2, 3}) expect_equal(with({.dp = 2}), with({.dp = 2, .zero = zero}));
}

TEST_P(MixedEquality, RecomputationAndOffloadChangeNothing) {
  for (const Recompute recompute : {Recompute::full, Recompute::selective}) {
    expect_equal(with({}), with({.recompute = recompute}));
    expect_equal(with({.dp = 2, .zero = 3, .micro = 2}),
                 with({.dp = 2, .zero = 3, .micro = 2, .recompute = recompute}));
  }
  for (const int zero : {0, 1, 3})
    expect_equal(with({.dp = 2, .zero = zero}),
                 with({.dp = 2, .zero = zero, .offload = Offload::optimizer}));
}

TEST_P(MixedEquality, PipelinesGiveTheBitsOfThePlainRun) {
  for (const char* schedule : {"gpipe", "1f1b"})
    expect_equal(with({.micro = 4}), with({.pp = 2, .micro = 4, .schedule = schedule}));
  expect_equal(with({.dp = 2, .micro = 2}), with({.dp = 2, .pp = 2, .zero = 1, .micro = 2}));
}

TEST_P(MixedEquality, TensorParallelRanksAgreeWithEachOther) {
  const Experiment e = with({.tp = 2, .sequence = true});
  const Record plain = run(with({})).front();
  for (const Record& record : run(e)) {
    EXPECT_EQ(record, run(e).front());
    for (std::size_t i = 0; i < plain.losses.size(); ++i)
      EXPECT_NEAR(record.losses[i] / plain.losses[i], 1, 1e-2);
  }
}

TEST_P(MixedEquality, AccumulationGivesTheBitsOfOneBatch) {
  expect_equal(with({}), with({.micro = 4}));
}

TEST_P(MixedEquality, ThreadsOfARankChangeNothing) {
  const Experiment e = with({});
  const Record one = run(e).front();
  on_ranks(1, Wire::local, [&](RankContext& context) {
    context.device = kernels::cpu_device({.threads = 3});
    EXPECT_EQ(run_on(context, e), one);
  });
}

TEST_P(MixedEquality, InitialMastersAreTheWeightsOfAnF32Run) {
  for (const int zero : {0, 1, 3}) {
    Experiment narrow = with({.dp = 2, .zero = zero}), wide = narrow;
    wide.layout.compute = DType::f32;
    narrow.steps = wide.steps = 0;
    EXPECT_EQ(run(narrow).front().weights, run(wide).front().weights);
    narrow.steps = wide.steps = 1;
    EXPECT_NE(run(narrow).front().weights, run(wide).front().weights) << "16 bits were in use";
  }
}

TEST_P(MixedEquality, ASnapshotGoesThroughF32AndBackAndTheRunGoesOnBitwise) {
  const Experiment e = with({.dp = 2, .zero = 3, .micro = 2});
  on_ranks(2, Wire::local, [&](RankContext& context) {
    const auto engine_in = [&](DType type, int zero) {
      const Layout layout{.dp = 2, .zero = zero, .micro = 2, .compute = type};
      return Engine(gpt(e.shape), layout, context.mesh, context.device, e.optimizer);
    };
    const auto train = [&](Engine& engine, int first, int end) {
      for (int step = first; step < end; ++step) {
        std::vector<Rows> parts = share_of(e.shape, step, e.batch, context.mesh.dp_rank, 2, 2);
        engine.step(micros_of(parts));
      }
    };
    Engine whole = engine_in(GetParam(), 3);
    whole.initialize(1);
    train(whole, 0, 2);
    const Snapshot middle = whole.snapshot();
    EXPECT_EQ(middle.loss_scale.has_value(), GetParam() == DType::f16);
    for (const NamedTensor& tensor : middle.tensors) EXPECT_EQ(tensor.type, DType::f32);
    train(whole, 2, 4);

    Engine wide = engine_in(DType::f32, 1);
    wide.restore(middle);
    Snapshot out = wide.snapshot();
    EXPECT_EQ(hash_of(out), hash_of(middle));
    EXPECT_FALSE(out.loss_scale.has_value());
    Engine again = engine_in(GetParam(), 3);
    again.restore(out);
    EXPECT_EQ(hash_of(again.snapshot()), hash_of(middle));
    again.restore(middle);
    train(again, 2, 4);
    EXPECT_EQ(hash_of(again.snapshot()), hash_of(whole.snapshot()));
    EXPECT_EQ(again.snapshot().loss_scale, whole.snapshot().loss_scale);
  });
}

INSTANTIATE_TEST_SUITE_P(Types, MixedEquality, ::testing::ValuesIn(kNarrowTypes),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// Four ranks divide all sizes.
TEST(MixedBytes, PerRankAreTheFormulasAndThoseOfThePlan) {
  constexpr GptShape shape{
      .vocabulary = 64, .context = 16, .layers = 3, .heads = 2, .channels = 32};
  for (const int n : {1, 4})
    for (int zero = 0; zero <= 3; ++zero)
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        const Layout layout{
            .dp = n, .zero = zero, .micro = 2, .compute = DType::bf16, .recompute = recompute};
        SCOPED_TRACE(layout_text(layout));
        const auto in = [&](const Layout&) {
          return Spec{DType::i32, {8 / n / layout.micro, shape.context}};
        };
        const PlannedModel model = planned([&] { return gpt(shape); }, in, {});
        const Plan plan = train::plan(model, layout);
        on_ranks(n, Wire::local, [&](RankContext& context) {
          Engine engine(gpt(shape), layout, context.mesh, context.device, {});
          engine.initialize(1);
          const auto traffic = [&] {
            if (context.mesh.dp == nullptr) return collective::Traffic{};
            context.mesh.dp->barrier();
            return context.mesh.dp->traffic();
          };
          const collective::Traffic before = traffic();
          std::vector<Rows> parts = share_of(shape, 0, 8, context.mesh.dp_rank, n, layout.micro);
          engine.step(micros_of(parts));
          const collective::Traffic after = traffic();
          const auto expect_moved = [](std::uint64_t begin, std::uint64_t end,
                                       std::uint64_t bytes) {
            EXPECT_NEAR(static_cast<double>(end - begin), static_cast<double>(bytes), 1.0);
          };
          expect_moved(before.all_reduce, after.all_reduce, plan.traffic.all_reduce);
          expect_moved(before.reduce_scatter, after.reduce_scatter, plan.traffic.reduce_scatter);
          expect_moved(before.all_gather, after.all_gather, plan.traffic.all_gather);
          expect_moved(before.padding, after.padding, plan.traffic.padding);
          const Store::Bytes store = engine.bytes().store;
          const std::int64_t p = engine.index().parameter_count();
          const std::int64_t formulas[] = {18 * p, 6 * p + 12 * p / n, 2 * p + 16 * p / n,
                                           18 * p / n};
          EXPECT_EQ(store.total() - store.transient - store.padding,
                    formulas[zero] + 4 * shape.vocabulary * shape.channels);
          EXPECT_EQ(store.total() - store.transient, plan.store.total() - plan.store.transient);
          EXPECT_EQ(store.peak_transient, plan.store.peak_transient);
          EXPECT_EQ(engine.bytes().activations, plan.activations);
          EXPECT_EQ(context.device.allocated().peak_device, plan.device_bytes());
        });
      }
}

TEST(MixedBytes, OfActivationsAreAboutHalfOfF32) {
  const auto activations = [](DType type) {
    const Layout layout{.compute = type};
    const Model model = gpt({});
    index_of(model, layout);
    return static_cast<double>(activation_bytes(model, layout, {DType::i32, {8, 16}}));
  };
  EXPECT_NEAR(activations(DType::bf16) / activations(DType::f32), 0.5, 0.05);
}

/// A loss of 0 whose gradient is the input times the loss scale; it passes through f16.
class Overflowing final : public Layer {
 public:
  Overflowing() : Layer("overflowing") {}
  void declare(Index& index, int unit, const Layout&) override {
    id_ = index.add(unit, "w", {8}, Group::decay);
  }
  void initialize(const Run& run, const Tensors& w) const override { fill_value(run, w, id_, 1); }
  Need need(const Spec& in, const Layout&) const override {
    return {.out = {DType::f32, {in.shape[0]}}};
  }
  void forward(const Run&, const Tensors&, TensorView x, TensorView y, TensorView,
               TensorView) const override {
    std::fill_n(y.as<float>(), y.count(), std::isnan(x.as<float>()[0]) ? x.as<float>()[0] : 0.0f);
  }
  void backward_input(const Run&, const Tensors&, TensorView, TensorView, TensorView, TensorView,
                      TensorView, TensorView) const override {}
  void backward_weight(const Run& run, const Tensors& g, TensorView, TensorView x, TensorView,
                       TensorView, TensorView) const override {
    const double scaled = static_cast<double>(x.as<float>()[0]) * run.targets->scale;
    g[id_].as<float>()[3] += kernels::from_f16(kernels::to_f16(static_cast<float>(scaled)));
  }
  double flops(const Spec&) const override { return 0; }
  bool is_loss() const noexcept override { return true; }
  DType target_type() const noexcept override { return DType::f32; }

 private:
  TensorId id_ = -1;
};

struct Scaled {
  Engine engine;
  float x = 1;

  Scaled(RankContext& context, const Layout& layout, const OptimizerOptions& optimizer)
      : engine(model(), layout, context.mesh, context.device, optimizer) {
    engine.initialize(1);
  }
  static Model model() {
    Model layers;
    layers.push_back(std::make_unique<Overflowing>());
    return layers;
  }
  StepResult step(float input) {
    x = input;
    const MicroBatch micro{.input = {&x, DType::f32, {1, 1}}, .targets = {&x, DType::f32, {1}}};
    return engine.step(std::span(&micro, 1));
  }
};

TEST(LossScaling, LeavesOutStepsThatOverflowAndHalvesUntilTheyFit) {
  for (const int zero : {0, 1, 2, 3})
    on_ranks(2, Wire::local, [&](RankContext& context) {
      Scaled run(context, {.dp = 2, .zero = zero, .compute = DType::f16},
                 {.rate = 0.5f, .decay = 0, .max_norm = 0, .loss_scaler = {.interval = 3}});
      const std::uint64_t before = run.engine.weights_hash();
      const Snapshot start = run.engine.snapshot();
      // On one rank only: 3 * 65536 and 3 * 32768 are beyond f16, and 3 * 16384 is not.
      const float x = context.mesh.dp_rank == 1 ? 3 : 0;
      for (const double scale : {65536, 32768}) {
        const StepResult bad = run.step(x);
        EXPECT_FALSE(bad.applied);
        EXPECT_FALSE(std::isfinite(bad.norm));
        EXPECT_EQ(bad.scale, scale);
        EXPECT_EQ(bad.loss, 0);
        EXPECT_EQ(run.engine.steps(), 0);
        EXPECT_EQ(run.engine.weights_hash(), before);
        EXPECT_EQ(hash_of(run.engine.snapshot()), hash_of(start)) << "moments too";
      }
      for (int good = 0; good < 3; ++good) {
        const StepResult result = run.step(x);
        EXPECT_TRUE(result.applied);
        EXPECT_EQ(result.scale, 16384);
        EXPECT_EQ(result.norm, 3) << "without the scale";
        EXPECT_EQ(result.step, good + 1);
      }
      EXPECT_NE(run.engine.weights_hash(), before);
      EXPECT_EQ(run.engine.snapshot().loss_scale, (LossScale{32768, 0}))
          << "behind three good ones";
    });
}

TEST(LossScaling, ChangesNeitherClipNorUpdate) {
  const auto weights_with = [](float initial) {
    std::uint64_t hash = 0;
    on_ranks(1, Wire::local, [&](RankContext& context) {
      Scaled run(context, {.compute = DType::f16},
                 {.max_norm = 0.25, .loss_scaler = {.initial = initial}});
      for (const float x : {1.0f, 0.5f, 0.125f}) {
        const StepResult result = run.step(x);
        EXPECT_EQ(result.norm, static_cast<double>(x));
        EXPECT_EQ(result.scale, static_cast<double>(initial));
      }
      hash = run.engine.weights_hash();
    });
    return hash;
  };
  EXPECT_EQ(weights_with(1), weights_with(256));
  EXPECT_EQ(weights_with(1), weights_with(32768));
}

TEST(LossScaling, DoesNotTouchALossThatIsNotFinite) {
  on_ranks(1, Wire::local, [](RankContext& context) {
    Scaled run(context, {.compute = DType::f16}, {});
    std::string message = "none";
    try {
      run.step(std::numeric_limits<float>::quiet_NaN());
    } catch (const InvalidArgument& error) {
      message = error.message();
    }
    EXPECT_NE(message.find("use compute = bf16"), std::string::npos) << message;
    EXPECT_EQ(run.engine.snapshot().loss_scale, (LossScale{65536, 0}));
    EXPECT_TRUE(run.step(0.5f).applied) << "the engine goes on";
  });
}

TEST(LossScaling, GoesOnFromASnapshotAndBeginsAnewWithoutOne) {
  on_ranks(1, Wire::local, [](RankContext& context) {
    const OptimizerOptions optimizer{.loss_scaler = {.interval = 3}};
    Scaled run(context, {.compute = DType::f16}, optimizer);
    run.step(1);
    run.step(0.25f);
    const Snapshot saved = run.engine.snapshot();
    EXPECT_EQ(saved.loss_scale, (LossScale{32768, 1})) << "65536 is beyond f16";
    run.step(0.25f);
    Scaled other(context, {.compute = DType::f16}, optimizer);
    other.engine.restore(run.engine.snapshot());
    EXPECT_EQ(other.engine.snapshot().loss_scale, run.engine.snapshot().loss_scale);
    Snapshot old = saved;
    old.loss_scale.reset();
    other.engine.restore(old);
    EXPECT_EQ(other.engine.snapshot().loss_scale, (LossScale{65536, 0}));
    Snapshot bad = saved;
    bad.loss_scale = LossScale{0, 0};
    EXPECT_THROW(other.engine.restore(bad), InvalidArgument);
    other.engine.restore(saved);
    other.engine.initialize(1);
    EXPECT_EQ(other.engine.snapshot().loss_scale, (LossScale{65536, 0}));
    Scaled wide(context, {.compute = DType::bf16}, optimizer);
    EXPECT_EQ(wide.step(0.5f).scale, 1);
    EXPECT_FALSE(wide.engine.snapshot().loss_scale.has_value());
  });
}

TEST(MixedLayouts, OfOtherTypesAreRefused) {
  on_ranks(1, Wire::local, [](RankContext& context) {
    for (const DType type : {DType::f64, DType::i32, DType::u8}) try {
        const Engine engine(gpt({}), {.compute = type}, context.mesh, context.device, {});
        ADD_FAILURE() << name_of(type);
      } catch (const InvalidArgument& error) {
        EXPECT_NE(error.message().find("use compute = f32, bf16 or f16"), std::string::npos)
            << error.message();
      }
  });
}

TEST(MixedPredictions, AreLogitsOfTheLayoutsType) {
  on_ranks(1, Wire::local, [](RankContext& context) {
    const auto logit = [&](DType type) {
      Engine engine(gpt({}), {.compute = type}, context.mesh, context.device, {});
      engine.initialize(1);
      Rows rows = rows_of({}, 0, 0, 1);
      const TensorView logits = engine.predict(rows.micro().input);
      EXPECT_EQ(logits.type, type);
      if (type == DType::f32) return logits.as<float>()[7];
      const std::uint16_t bits = logits.as<std::uint16_t>()[7];
      return type == DType::bf16 ? kernels::from_bf16(bits) : kernels::from_f16(bits);
    };
    const float wide = logit(DType::f32);
    EXPECT_NEAR(logit(DType::bf16), wide, 2e-2f * std::abs(wide) + 2e-3f);
    EXPECT_NEAR(logit(DType::f16), wide, 2e-3f * std::abs(wide) + 2e-4f);
  });
}

}  // namespace
}  // namespace troupe::train::testing
