// Tests pipelines against the plain run of the same micro-batches: the same bits of weights,
// moments, losses and norms. The clip and dropout are active, and products use the built-in GEMM.
#include "tests/train/engine/failing_layer.hpp"
#include "tests/train/engine/ranks.hpp"
#include "troupe/train/engine/internal/slots.hpp"
#include "troupe/train/engine/model_plan.hpp"

#include <algorithm>
#include <fstream>
#include <map>

namespace troupe::train::testing {
namespace {

/// Rows that three, four and more micro-batches do not divide.
constexpr std::int64_t kPipelineBatch = 10;

GptShape shape_of(std::int64_t layers) {
  return {.vocabulary = 29,
          .context = 6,
          .layers = layers,
          .heads = 2,
          .channels = 16,
          .dropout = 0.1f};
}

Experiment experiment(std::int64_t layers, const Layout& layout) {
  Experiment e;
  e.shape = shape_of(layers);
  e.layout = layout;
  e.batch = kPipelineBatch;
  e.ignored = 0.2;
  e.steps = 3;
  return e;
}

/// Returns the same experiment on one stage.
Experiment plain_of(Experiment e) {
  e.layout.pp = 1;
  e.wire = Wire::local;
  return e;
}

std::string text_of_case(const Layout& layout) {
  return layout.schedule + " pp=" + std::to_string(layout.pp) +
         " m=" + std::to_string(layout.micro) + " dp=" + std::to_string(layout.dp);
}

class Pipelines : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(kernels::use_blas(kernels::Blas::builtin)); }

  /// Expects this record on every rank, and that the clip was active.
  static void expect(const Experiment& e, const Record& record) {
    SCOPED_TRACE(text_of_case(e.layout));
    for (const Record& one : run(e)) EXPECT_EQ(one, record);
    for (const double norm : record.norms) EXPECT_GT(norm, e.optimizer.max_norm);
  }
  static void expect_plain(const Experiment& e) { expect(e, run(plain_of(e)).front()); }

  /// Compares all three schedules with the plain run, on 2 to 4 ranks with 1 to 8 micro-batches.
  static void expect_plain_of_all(const std::function<void(Experiment&)>& change) {
    for (const int pp : {2, 3, 4})
      for (int micro = 1; micro <= 8; ++micro) {
        Experiment e = experiment(std::int64_t{2} * pp, {.pp = pp, .micro = micro});
        change(e);
        const Record plain = run(plain_of(e)).front();
        for (const char* schedule : {"gpipe", "1f1b", "interleaved"}) {
          e.layout.schedule = schedule;
          if (e.layout.schedule == "interleaved" && micro % pp != 0) continue;
          expect(e, plain);
        }
      }
  }
};

TEST_F(Pipelines, GiveTheBitsOfThePlainRunWithATiedHead) {
  expect_plain_of_all([](Experiment&) {});
}

TEST_F(Pipelines, GiveTheBitsOfThePlainRunWithAHeadOfItsOwn) {
  expect_plain_of_all([](Experiment& e) { e.shape.tied = false; });
}

TEST_F(Pipelines, GiveTheBitsOfThePlainRunUnderFullRecompute) {
  expect_plain_of_all([](Experiment& e) { e.layout.recompute = Recompute::full; });
}

TEST_F(Pipelines, GiveTheBitsOfThePlainRunWithOneLayerAStage) {
  for (const int pp : {2, 3, 4})
    for (const Recompute recompute : {Recompute::none, Recompute::full})
      expect_plain(experiment(pp, {.pp = pp, .micro = 4, .recompute = recompute}));
}

TEST_F(Pipelines, GiveTheBitsOfThePlainRunWithThreeStagesARank) {
  expect_plain(experiment(6, {.pp = 2, .micro = 4, .schedule = "interleaved:3"}));
}

TEST_F(Pipelines, GiveTheBitsOfThePlainRunWithEmptyMicroBatches) {
  for (const char* schedule : {"gpipe", "1f1b", "interleaved"}) {
    Experiment e = experiment(4, {.pp = 2, .micro = 6, .schedule = schedule});
    e.batch = 3;
    expect_plain(e);
  }
}

TEST_F(Pipelines, GiveTheBitsOfThePlainRunOverSharedMemory) {
  Experiment e = experiment(4, {.pp = 2, .micro = 4, .schedule = "interleaved"});
  e.wire = Wire::shm;
  expect_plain(e);
}

TEST_F(Pipelines, GiveTheBitsOfDataParallelRanksOnEachStage) {
  for (const int zero : {0, 1})
    for (const char* schedule : {"gpipe", "1f1b", "interleaved"})
      expect_plain(
          experiment(4, {.dp = 2, .pp = 2, .zero = zero, .micro = 4, .schedule = schedule}));
  expect_plain(experiment(3, {.dp = 3, .pp = 3, .zero = 1, .micro = 2}));
}

TEST_F(Pipelines, GiveTheBitsOfOneStageThatDividesTensors) {
  for (const bool sequence : {false, true})
    for (const char* schedule : {"gpipe", "1f1b", "interleaved"})
      expect_plain(experiment(
          4, {.tp = 2, .pp = 2, .micro = 2, .sequence = sequence, .schedule = schedule}));
  expect_plain(experiment(4, {.dp = 2, .tp = 2, .pp = 2, .zero = 1, .micro = 2, .sequence = true}));
}

TEST_F(Pipelines, GiveTheBitsOfThePlainRunInSixteenBits) {
  for (const DType compute : {DType::bf16, DType::f16})
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      Experiment e =
          experiment(4, {.pp = 2, .micro = 4, .compute = compute, .recompute = recompute});
      e.optimizer.loss_scaler.initial = 1024;  // no step is skipped
      expect_plain(e);
    }
  expect_plain(experiment(4, {.dp = 2, .pp = 2, .zero = 1, .micro = 2, .compute = DType::bf16}));
}

TEST_F(Pipelines, GiveTheBitsOfThePlainRunWithOffload) {
  expect_plain(
      experiment(2, {.dp = 2, .pp = 2, .zero = 1, .micro = 2, .offload = Offload::optimizer}));
}

/// A schedule as a file that lives as long as this object.
class ScheduleFile {
 public:
  explicit ScheduleFile(const std::string& text)
      : path_(::testing::TempDir() + "/schedule_" +
              std::to_string(hash_bytes(text.data(), text.size())) + ".txt") {
    std::ofstream(path_) << text;
  }
  ~ScheduleFile() { std::remove(path_.c_str()); }
  std::string name() const { return "file:" + path_; }

 private:
  std::string path_;
};

TEST_F(Pipelines, GiveTheBitsOfThePlainRunWhereWeightGradientsComeLater) {
  const ScheduleFile file(
      "0F0 0F1 0I0 0F2 0W0 0I1 0I2 0W1 0W2\n"
      "1F0 1I0 1F1 1I1 1W0 1F2 1W1 1I2 1W2\n");
  for (const Recompute recompute : {Recompute::none, Recompute::full})
    for (const std::int64_t layers : {2, 4})
      expect_plain(experiment(
          layers, {.pp = 2, .micro = 3, .recompute = recompute, .schedule = file.name()}));
}

TEST_F(Pipelines, AreCloseToThePlainRunWhereWeightGradientsComeInAnotherOrder) {
  const ScheduleFile file(
      "0F0 0F1 0I0 0F2 0I1 0I2 0W2 0W1 0W0\n"
      "1F0 1I0 1F1 1I1 1W1 1F2 1I2 1W2 1W0\n");
  const Experiment e = experiment(2, {.pp = 2, .micro = 3, .schedule = file.name()});
  const Record plain = run(plain_of(e)).front(), other = run(e).front();
  for (std::size_t i = 0; i < plain.losses.size(); ++i) {
    EXPECT_NEAR(other.losses[i] / plain.losses[i], 1, 1e-5);
    EXPECT_NEAR(other.norms[i] / plain.norms[i], 1, 1e-5);
  }
}

TEST_F(Pipelines, EvaluateAndPredictWhatThePlainRunDoes) {
  const GptShape shape = shape_of(4);
  Rows rows = rows_of(shape, 9, 0, 5), more = rows_of(shape, 10, 0, 2);
  const MicroBatch micros[] = {rows.micro(), {}, more.micro()};
  double loss = 0;
  std::vector<float> logits;
  const auto run_engine = [&](RankContext& context, const Layout& layout, double& of_loss) {
    Engine engine(gpt(shape), layout, context.mesh, context.device, {});
    engine.initialize(3);
    of_loss = engine.evaluate(micros);
    const TensorView view = engine.predict(rows.micro().input);
    EXPECT_EQ(view.shape, (Shape{5, shape.context, shape.vocabulary}));
    EXPECT_NEAR(engine.evaluate(micros), of_loss, 0);
    EXPECT_EQ(engine.predict({}).data, nullptr);
    const TensorView again = engine.predict(rows.micro().input);
    return std::vector<float>(again.as<float>(), again.as<float>() + again.count());
  };
  on_mesh({}, Wire::local, [&](RankContext& context) { logits = run_engine(context, {}, loss); });
  for (const char* schedule : {"1f1b", "interleaved"})
    on_mesh({.pp = 2}, Wire::local, [&](RankContext& context) {
      double other = 0;
      const Layout layout{.pp = 2, .micro = 2, .schedule = schedule};
      EXPECT_EQ(run_engine(context, layout, other), logits);
      EXPECT_EQ(other, loss);
    });
}

TEST_F(Pipelines, GoOnFromSnapshotsOfOtherNumbersOfStages) {
  const Experiment plain = experiment(4, {.micro = 4});
  const auto step_of = [&](Engine& engine, int step) {
    std::vector<Rows> parts = share_of(plain.shape, step, kPipelineBatch, 0, 1, 4);
    return engine.step(micros_of(parts));
  };
  Snapshot middle;
  std::uint64_t expected = 0;
  on_mesh({}, Wire::local, [&](RankContext& context) {
    Engine engine(gpt(plain.shape), plain.layout, context.mesh, context.device, plain.optimizer);
    engine.initialize(1);
    step_of(engine, 0);
    middle = engine.snapshot();
    step_of(engine, 1);
    expected = engine.weights_hash();
  });
  for (const int pp : {2, 4})
    on_mesh({.pp = pp}, Wire::local, [&](RankContext& context) {
      Engine engine(gpt(plain.shape), {.pp = pp, .micro = 4}, context.mesh, context.device,
                    plain.optimizer);
      engine.initialize(7);
      step_of(engine, 5);
      engine.restore(middle);
      EXPECT_EQ(hash_of(engine.snapshot()), hash_of(middle));
      step_of(engine, 1);
      EXPECT_EQ(engine.weights_hash(), expected);
    });
}

/// Bytes that a rank sends in a step: to other stages, and to the rank that shares its embedding.
struct Sent {
  std::uint64_t stages = 0, tied = 0;
};

std::vector<Sent> sent_in_a_step(const Experiment& e) {
  std::vector<Sent> sent(static_cast<std::size_t>(e.layout.ranks()));
  on_mesh(mesh_of(e.layout), e.wire, [&](RankContext& context) {
    Engine engine(gpt(e.shape), e.layout, context.mesh, context.device, e.optimizer);
    engine.initialize(1);
    const auto count = [&] {
      const auto of = [](const auto& group) {
        return group == nullptr ? std::uint64_t{0} : group->traffic().payload();
      };
      return Sent{of(context.mesh.pp), of(context.mesh.tied)};
    };
    const Sent before = count();
    std::vector<Rows> parts = share_of(e.shape, 0, e.batch, 0, 1, e.layout.micro);
    engine.step(micros_of(parts));
    const Sent after = count();
    sent[static_cast<std::size_t>(context.mesh.rank())] = {after.stages - before.stages,
                                                           after.tied - before.tied};
  });
  return sent;
}

TEST_F(Pipelines, SendOneActivationForEachBoundaryDirectionAndMicroBatch) {
  for (const char* schedule : {"gpipe", "1f1b", "interleaved"})
    for (const bool tied : {true, false}) {
      Experiment e = experiment(8, {.pp = 4, .micro = 4, .schedule = schedule});
      e.shape.tied = tied;
      const int v = e.layout.schedule == "interleaved" ? 2 : 1;
      const auto all =
          static_cast<std::uint64_t>(4 * kPipelineBatch * e.shape.context * e.shape.channels);
      const auto table = static_cast<std::uint64_t>(4 * e.shape.vocabulary * e.shape.channels);
      const std::vector<Sent> sent = sent_in_a_step(e);
      for (int rank = 0; rank < 4; ++rank) {
        SCOPED_TRACE(text_of_case(e.layout) + " rank " + std::to_string(rank));
        const int forward = rank == 3 ? v - 1 : v, backward = rank == 0 ? v - 1 : v;
        const Sent& of = sent[static_cast<std::size_t>(rank)];
        EXPECT_EQ(of.stages, all * static_cast<std::uint64_t>(forward + backward));
        EXPECT_EQ(of.tied, tied && (rank == 0 || rank == 3) ? table : 0);
      }
    }
}

TEST_F(Pipelines, KeepAsManyMicroBatchesAsTheScheduleSays) {
  const Model model = gpt(shape_of(8));
  const auto slots = [&](const Layout& layout, int rank) {
    return internal::rank_plan(model, layout, rank)
        .live.front()[static_cast<std::size_t>(internal::Region::slot)];
  };
  for (const int pp : {2, 4})
    for (int micro = 1; micro <= 8; ++micro)
      for (int rank = 0; rank < pp; ++rank) {
        EXPECT_EQ(slots({.pp = pp, .micro = micro}, rank), std::min(micro, pp - rank));
        EXPECT_EQ(slots({.pp = pp, .micro = micro, .schedule = "gpipe"}, rank), micro);
      }
  EXPECT_EQ(slots({.micro = 8}, 0), 1);
}

TEST_F(Pipelines, UseTheBytesThatThePlanSays) {
  const ScheduleFile apart(
      "0F0 0F1 0I0 0F2 0W0 0F3 0I1 0I2 0W1 0W2 0I3 0W3\n"
      "1F0 1I0 1F1 1I1 1W0 1F2 1W1 1I2 1W2 1F3 1I3 1W3\n");
  for (const std::string& schedule :
       {std::string("gpipe"), std::string("1f1b"), std::string("interleaved"), apart.name()})
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      Experiment e =
          experiment(4, {.pp = 2, .micro = 4, .recompute = recompute, .schedule = schedule});
      e.batch = 8;
      on_mesh({.pp = 2}, Wire::local, [&](RankContext& context) {
        Engine engine(gpt(e.shape), e.layout, context.mesh, context.device, {});
        engine.initialize(1);
        std::vector<Rows> parts = share_of(e.shape, 0, e.batch, 0, 1, e.layout.micro);
        engine.step(micros_of(parts));
        const Model model = gpt(e.shape);
        const RankPlace place{.pp = context.mesh.pp_rank};
        const Index index = index_of(model, e.layout, place);
        const Spec in{DType::i32, {2, e.shape.context}};
        const std::int64_t activations = activation_bytes(model, e.layout, in, place);
        EXPECT_EQ(engine.bytes().activations, activations) << schedule;
        EXPECT_EQ(context.device.allocated().peak_device,
                  engine.bytes().store.total() + activations)
            << schedule;
        const std::int64_t copy = 4 * ((e.shape.vocabulary * e.shape.channels + 63) / 64 * 64);
        EXPECT_EQ(engine.bytes().store.copies, place.pp == 1 ? copy : 0);
      });
    }
}

TEST_F(Pipelines, TraceTheTimeInWhichTheyWaitForOtherStages) {
  const Experiment e = experiment(2, {.pp = 2, .micro = 4});
  on_mesh({.pp = 2}, Wire::local, [&](RankContext& context) {
    Engine engine(gpt(e.shape), e.layout, context.mesh, context.device, {});
    engine.initialize(1);
    std::vector<Rows> parts = share_of(e.shape, 0, e.batch, 0, 1, e.layout.micro);
    engine.step(micros_of(parts));
    EXPECT_GT(engine.trace().forward.count(), 0);
    EXPECT_GT(engine.trace().backward.count(), 0);
    EXPECT_GT(engine.trace().bubble.count(), 0);
  });
}

/// Returns the sentence with which all ranks of a pipeline refuse a layout.
std::string pipeline_refusal_of(const Layout& layout, std::int64_t layers) {
  std::vector<std::string> messages(static_cast<std::size_t>(layout.pp), "none");
  on_mesh(mesh_of(layout), Wire::local, [&](RankContext& context) {
    try {
      Engine(gpt(shape_of(layers)), layout, context.mesh, context.device, {});
    } catch (const InvalidArgument& error) {
      messages[static_cast<std::size_t>(context.mesh.pp_rank)] = error.message();
    }
    context.mesh.world->barrier();  // the group still works on every rank
  });
  for (const std::string& message : messages) EXPECT_EQ(message, messages.front());
  return messages.front();
}

void expect_says(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST_F(Pipelines, ThatDoNotFitAreRefusedOnAllRanks) {
  expect_says(pipeline_refusal_of({.pp = 4}, 6),
              "choose pp times the stages of a rank as 1, 2, 3 or 6");
  expect_says(pipeline_refusal_of({.pp = 2, .micro = 2, .schedule = "interleaved"}, 6), "6 layers");
  expect_says(pipeline_refusal_of({.pp = 2, .micro = 3, .schedule = "interleaved"}, 4), "multiple");
  expect_says(pipeline_refusal_of({.pp = 2, .zero = 2}, 4), "choose zero = 1");
  EXPECT_NE(pipeline_refusal_of({.pp = 2, .schedule = "2f2b"}, 4), "none");
  const ScheduleFile circle(
      "0F0 0RecvB0 0B0 0SendF0\n"
      "1RecvF0 1F0 1B0 1SendB0\n");
  EXPECT_NE(pipeline_refusal_of({.pp = 2, .schedule = circle.name()}, 4), "none");
  EXPECT_EQ(pipeline_refusal_of({.pp = 2}, 4), "none");
}

TEST_F(Pipelines, WhoseMiddleStagesShareATensorAreRefused) {
  Model model = gpt(shape_of(4));
  model.back() = std::make_unique<layers::LmHead>(
      "transformer.ln_f",
      layers::LmHeadConfig{
          .vocabulary = 16, .channels = 16, .tied_to = "transformer.h.1.attn.c_proj.weight"});
  EXPECT_NO_THROW(declare(model, {.pp = 2}, rank_stages(model, 2, 1, 0)));
  try {
    declare(model, {.pp = 4}, rank_stages(model, 4, 1, 0));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    expect_says(error.message(), "only the first rank may share with the last");
  }
}

// A step ends on every rank, with the stage on which the failure began.
TEST_F(Pipelines, EndOnAllRanksWhereTheFirstOrTheLastStageFails) {
  const Experiment e = experiment(4, {.pp = 3, .micro = 4});  // nine layers with the failing ones
  for (const int failing : {0, 2})
    on_mesh({.pp = 3}, Wire::local, [&](RankContext& context) {
      const bool fails = context.mesh.pp_rank == failing;
      Engine engine(failing_gpt(e.shape, fails), e.layout, context.mesh, context.device, {});
      engine.initialize(1);
      std::vector<Rows> parts = share_of(e.shape, 0, e.batch, 0, 1, 4);
      try {
        engine.step(micros_of(parts));
        ADD_FAILURE() << "the step went on";
      } catch (const Cancelled& error) {
        EXPECT_FALSE(fails);
        expect_says(error.message(), "rank " + std::to_string(failing) + " stopped in step()");
      } catch (const std::exception& error) {
        EXPECT_TRUE(fails);
        expect_says(error.what(), "the layer failed");
      }
      EXPECT_THROW(engine.weights_hash(), Unavailable);
    });
}

TEST_F(Pipelines, ReduceUnitsWhileBackwardRuns) {
  const Experiment e = experiment(4, {.dp = 2, .pp = 2, .micro = 4});
  on_mesh(mesh_of(e.layout), Wire::local, [&](RankContext& context) {
    Engine engine(gpt(e.shape), e.layout, context.mesh, context.device, {});
    engine.initialize(1);
    std::vector<Rows> parts = share_of(e.shape, 0, e.batch, context.mesh.dp_rank, 2, 4);
    engine.step(micros_of(parts));
    std::int64_t all = 0, first = 0;
    for (const UnitPlace& unit : engine.index().units()) {
      if (all == 0) first = 4 * unit.used;
      all += 4 * unit.used;
    }
    EXPECT_EQ(engine.trace().bytes_reduced, all);
    EXPECT_EQ(engine.trace().bytes_before_end, all - first) << "all but the stage's first unit";
  });
}

}  // namespace
}  // namespace troupe::train::testing
