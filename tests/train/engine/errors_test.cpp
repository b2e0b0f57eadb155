// Tests what the engine refuses, in one sentence that says what to change, and what stops it.
#include "tests/train/engine/failing_layer.hpp"
#include "tests/train/engine/ranks.hpp"

#include <cmath>
#include <cstring>
#include <latch>
#include <limits>

namespace troupe::train::testing {
namespace {

const GptShape kRefusedShape{};

template <class F>
std::string message_of(F&& call) {
  try {
    std::forward<F>(call)();
  } catch (const Error& e) {
    return e.message();
  }
  return "none";
}
bool says(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

struct Learner {
  explicit Learner(RankContext& context, const Layout& layout = {})
      : engine(gpt(kRefusedShape), layout, context.mesh, context.device, {.rate = 1e-3f}) {
    engine.initialize(1);
  }
  StepResult step(Rows& rows, const StepOptions& options = {}) {
    const MicroBatch micro = rows.micro();
    return engine.step(std::span(&micro, 1), options);
  }
  Engine engine;
};

TEST(Layouts, ThatDoNotFitAreRefused) {
  on_ranks(2, Wire::local, [](RankContext& context) {
    const auto refusal = [&](const Layout& layout, Model model = gpt(kRefusedShape)) {
      return message_of(
          [&] { Engine(std::move(model), layout, context.mesh, context.device, {}); });
    };
    EXPECT_TRUE(says(refusal({.dp = 3}), "product is 2")) << refusal({.dp = 3});
    EXPECT_TRUE(says(refusal({.tp = 2}), "give both the same")) << refusal({.tp = 2});
    EXPECT_TRUE(says(refusal({.dp = 2, .zero = 4}), "0, 1, 2 or 3"));
    EXPECT_TRUE(says(refusal({.dp = 2, .compute = DType::f64}), "f32, bf16 or f16"));
    EXPECT_TRUE(says(refusal({.dp = 2}, {}), "no layers"));
    Model no_loss = gpt(kRefusedShape);
    no_loss.pop_back();
    EXPECT_TRUE(says(refusal({.dp = 2}, std::move(no_loss)), "end it with"));
    Model two_losses = gpt(kRefusedShape);
    two_losses.push_back(std::make_unique<layers::SoftmaxLoss>("loss"));
    EXPECT_TRUE(says(refusal({.dp = 2}, std::move(two_losses)), "before the model's end"));
    EXPECT_EQ(refusal({.dp = 2}), "none");
  });
}

TEST(Steps, RefuseInputsThatDoNotFitAndGoOn) {
  on_ranks(1, Wire::local, [](RankContext& context) {
    Learner learner(context);
    const std::uint64_t before = learner.engine.weights_hash();
    Rows rows = rows_of(kRefusedShape, 0, 0, 2);
    const MicroBatch two[] = {rows.micro(), rows.micro()};
    EXPECT_TRUE(says(message_of([&] { learner.engine.step(two); }), "2 micro-batches"));
    MicroBatch short_targets = rows.micro();
    short_targets.targets.shape = {1, kRefusedShape.context};
    EXPECT_TRUE(says(message_of([&] { learner.engine.step(std::span(&short_targets, 1)); }),
                     "one for each of its 32 losses"));
    MicroBatch untold = rows.micro(), floats = rows.micro(), empty = rows.micro();
    untold.targets = {};
    floats.targets.type = DType::f32;
    empty.input.data = nullptr;
    const auto refusal = [&](const MicroBatch& micro) {
      return message_of([&] { learner.engine.step(std::span(&micro, 1)); });
    };
    EXPECT_TRUE(says(refusal(untold), "has no targets")) << refusal(untold);
    EXPECT_TRUE(says(refusal(floats), "of type f32")) << refusal(floats);
    EXPECT_TRUE(says(refusal(empty), "input.data is null")) << refusal(empty);
    EXPECT_TRUE(says(message_of([&] { learner.engine.predict(empty.input); }), "null"));
    Rows numbered = rows;
    numbered.samples = {1};
    EXPECT_TRUE(says(message_of([&] { learner.step(numbered); }), "sample numbers"));
    GptShape longer = kRefusedShape;
    longer.context = 2 * kRefusedShape.context;
    Rows too_long = rows_of(longer, 0, 0, 1);
    EXPECT_NE(message_of([&] { learner.step(too_long); }), "none");
    EXPECT_TRUE(says(message_of([&] { learner.step(rows, {.rate = NAN}); }), "finite"));
    EXPECT_EQ(learner.engine.weights_hash(), before);
    EXPECT_EQ(learner.step(rows).step, 1);
  });
}

TEST(Engines, WithoutWeightsRefuseEachCallThatNeedsThem) {
  for (const Layout& layout : {Layout{.dp = 2}, Layout{.tp = 2}, Layout{.dp = 2, .zero = 3}})
    on_mesh(mesh_of(layout), Wire::local, [&](RankContext& context) {
      Engine engine(gpt(kRefusedShape), layout, context.mesh, context.device, {.rate = 1e-3f});
      Rows rows = rows_of(kRefusedShape, 0, 0, 2);
      const MicroBatch micro = rows.micro();
      const std::span<const MicroBatch> micros(&micro, 1);
      for (const std::string& message :
           {message_of([&] { engine.step(micros); }), message_of([&] { engine.evaluate(micros); }),
            message_of([&] { engine.predict(micro.input); }),
            message_of([&] { engine.snapshot(); }), message_of([&] { engine.weights_hash(); })})
        EXPECT_TRUE(says(message, "call initialize(seed) or restore(snapshot) first")) << message;
      engine.initialize(1);
      EXPECT_EQ(engine.step(micros).step, 1);
    });
}

TEST(Engines, WithoutWeightsOnOneRankRefuseTheStepOnAll) {
  on_ranks(2, Wire::local, [](RankContext& context) {
    Engine engine(gpt(kRefusedShape), {.dp = 2, .zero = 1}, context.mesh, context.device, {});
    Rows rows = rows_of(kRefusedShape, 0, 0, 2);
    const MicroBatch micro = rows.micro();
    if (context.mesh.dp_rank == 0) engine.initialize(1);
    const std::string message = message_of([&] { engine.step(std::span(&micro, 1)); });
    EXPECT_NE(message, "none");
  });
}

/// Steps on both ranks; rank 1 gets the batch that is refused. Returns this rank's message.
std::string message_of_step(Learner& learner, RankContext& context, const MicroBatch& good,
                            const MicroBatch& bad) {
  const MicroBatch& micro = context.mesh.dp_rank == 1 ? bad : good;
  return message_of([&] { learner.engine.step(std::span(&micro, 1)); });
}

TEST(Steps, RefusedByOneRankChangeNothingOnAnyRankAndAllGoOn) {
  on_ranks(2, Wire::local, [](RankContext& context) {
    const std::int64_t first = std::int64_t{2} * context.mesh.dp_rank;
    const bool refuses = context.mesh.dp_rank == 1;
    Learner learner(context, {.dp = 2, .zero = 2}), untouched(context, {.dp = 2, .zero = 2});
    Rows rows = rows_of(kRefusedShape, 0, first, first + 2);
    MicroBatch few = rows.micro(), large = rows.micro();
    few.targets.shape = {1, kRefusedShape.context};
    large.input.shape = large.targets.shape = {std::int64_t{1} << 40, kRefusedShape.context};
    const auto expect = [&](const std::string& message, const std::string& own) {
      EXPECT_TRUE(says(message, refuses ? own : "rank 1 refused its inputs")) << message;
    };
    expect(message_of_step(learner, context, rows.micro(), few), "losses");
    expect(message_of_step(learner, context, rows.micro(), large), "has no room for");
    const MicroBatch two[] = {rows.micro(), rows.micro()};
    const std::size_t count = refuses ? 2 : 1;
    expect(message_of([&] { learner.engine.step(std::span(two).first(count)); }),
           "2 micro-batches");
    const MicroBatch& micro = refuses ? few : two[0];
    expect(message_of([&] { learner.engine.evaluate(std::span(&micro, 1)); }), "losses");
    const StepResult result = learner.step(rows), expected = untouched.step(rows);
    EXPECT_EQ(result.step, 1);
    EXPECT_EQ(result.loss, expected.loss);
    EXPECT_EQ(learner.engine.weights_hash(), untouched.engine.weights_hash());
  });
}

// The bad id is in the first and in the last place, of one rank, of inputs and of targets.
TEST(Steps, WithAnIdOutsideOfTheVocabularyAreRefusedOnAllRanksAndAllGoOn) {
  for (const Layout& layout :
       {Layout{.dp = 2, .zero = 1}, Layout{.dp = 2, .zero = 3}, Layout{.tp = 2}, Layout{.pp = 2}})
    on_mesh(mesh_of(layout), Wire::local, [&](RankContext& context) {
      Learner learner(context, layout);
      Rows rows = rows_of(kRefusedShape, 0, 0, 2);
      const std::uint64_t before = learner.engine.weights_hash();
      for (const std::int32_t id : {1000, 61, -2})
        for (const bool in_targets : {false, true}) {
          Rows odd = rows;
          std::vector<std::int32_t>& ids = in_targets ? odd.targets : odd.inputs;
          (id == 61 ? ids.back() : ids.front()) = id;
          const bool alone = layout.dp == 2 && context.mesh.dp_rank == 0;
          const MicroBatch micro = (alone ? rows : odd).micro();
          const std::span<const MicroBatch> micros(&micro, 1);
          for (const std::string& message : {message_of([&] { learner.engine.step(micros); }),
                                             message_of([&] { learner.engine.evaluate(micros); })})
            EXPECT_TRUE(says(message, "id " + std::to_string(id) + " at place") ||
                        says(message, "refused its inputs"))
                << message;
        }
      EXPECT_EQ(learner.engine.weights_hash(), before);
      EXPECT_EQ(learner.step(rows).step, 1);
    });
}

TEST(Steps, WithoutAnySampleOrTargetAreRefusedOnAllRanks) {
  on_ranks(2, Wire::local, [](RankContext& context) {
    Learner learner(context, {.dp = 2, .zero = 1});
    Rows none;
    none.time = kRefusedShape.context;
    EXPECT_TRUE(says(message_of([&] { learner.step(none); }), "at least one rank a batch"));
    Rows ignored = rows_of(kRefusedShape, 0, 0, 2, 1.0);
    EXPECT_TRUE(says(message_of([&] { learner.step(ignored); }), "every target"));
    Rows rows = rows_of(kRefusedShape, 0, 0, 2);
    EXPECT_EQ(learner.step(rows).step, 1);
  });
}

/// Returns the snapshot with one weight set to this value.
Snapshot poisoned(Snapshot snapshot, const std::string& name, float value) {
  for (NamedTensor& tensor : snapshot.tensors)
    if (tensor.name == name) std::memcpy(tensor.bytes.data(), &value, sizeof value);
  return snapshot;
}

TEST(Steps, WithALossThatIsNotFiniteChangeNothingAndSaySo) {
  for (const int zero : {0, 1, 3})
    on_ranks(2, Wire::local, [&](RankContext& context) {
      Learner learner(context, {.dp = 2, .zero = zero});
      const Snapshot good = learner.engine.snapshot();
      learner.engine.restore(
          poisoned(good, "transformer.ln_f.weight", std::numeric_limits<float>::quiet_NaN()));
      const std::uint64_t before = learner.engine.weights_hash();
      Rows rows = rows_of(kRefusedShape, 0, context.mesh.dp_rank, context.mesh.dp_rank + 1);
      const std::string message = message_of([&] { learner.step(rows); });
      EXPECT_TRUE(says(message, "lower the learning rate")) << message;
      EXPECT_EQ(learner.engine.weights_hash(), before);
      EXPECT_EQ(learner.engine.steps(), 0);
      learner.engine.restore(good);  // the engine still works
      EXPECT_TRUE(learner.step(rows).applied);
    });
}

/// A loss of 0 whose gradient on rank 1 is not finite.
class Exploding final : public Layer {
 public:
  Exploding() : Layer("exploding") {}
  void declare(Index& index, int unit, const Layout&) override {
    id_ = index.add(unit, "w", {8}, Group::decay);
  }
  void initialize(const Run& run, const Tensors& w) const override { fill_value(run, w, id_, 1); }
  Need need(const Spec& in, const Layout&) const override {
    return {.out = {DType::f32, {in.shape[0]}}};
  }
  void forward(const Run&, const Tensors&, TensorView, TensorView y, TensorView,
               TensorView) const override {
    std::fill_n(y.as<float>(), y.count(), 0.0f);
  }
  void backward_input(const Run&, const Tensors&, TensorView, TensorView, TensorView, TensorView,
                      TensorView, TensorView) const override {}
  void backward_weight(const Run&, const Tensors& g, TensorView, TensorView x, TensorView,
                       TensorView, TensorView) const override {
    g[id_].as<float>()[3] += x.as<float>()[0];
  }
  double flops(const Spec&) const override { return 0; }
  bool is_loss() const noexcept override { return true; }
  DType target_type() const noexcept override { return DType::f32; }

 private:
  TensorId id_ = -1;
};

TEST(Steps, WithANormThatIsNotFiniteOnOneRankChangeNothingOnAnyRank) {
  on_ranks(2, Wire::local, [](RankContext& context) {
    for (const int zero : {0, 1, 2, 3}) {
      Model model;
      model.push_back(std::make_unique<Exploding>());
      Engine engine(std::move(model), {.dp = 2, .zero = zero}, context.mesh, context.device, {});
      engine.initialize(1);
      const std::uint64_t before = engine.weights_hash();
      float x = context.mesh.dp_rank == 1 ? std::numeric_limits<float>::infinity() : 1.0f;
      const auto step = [&] {
        const MicroBatch micro{.input = {&x, DType::f32, {1, 1}}, .targets = {&x, DType::f32, {1}}};
        return engine.step(std::span(&micro, 1));
      };
      const StepResult bad = step();
      EXPECT_FALSE(bad.applied);
      EXPECT_FALSE(std::isfinite(bad.norm));
      EXPECT_EQ(engine.weights_hash(), before);
      EXPECT_EQ(engine.steps(), 0);
      x = 1;
      EXPECT_TRUE(step().applied);
      EXPECT_NE(engine.weights_hash(), before);
    }
  });
}

TEST(Predictions, OfABadPromptAreRefusedAndTheEngineGoesOn) {
  for (const int zero : {0, 1, 2, 3})
    on_ranks(2, Wire::local, [&](RankContext& context) {
      Learner learner(context, {.dp = 2, .zero = zero});
      Rows rows = rows_of(kRefusedShape, 0, 0, 2), odd = rows;
      odd.inputs[3] = 1000;
      const bool alone = zero < 3;
      if (alone && context.mesh.dp_rank == 1) {
        EXPECT_TRUE(says(message_of([&] { learner.engine.predict(odd.micro().input); }), "1000"));
      }
      TensorView flat = rows.micro().input;
      if (context.mesh.dp_rank == 1) flat.shape = {2 * kRefusedShape.context};
      const std::string message = message_of([&] { learner.engine.predict(flat); });
      EXPECT_EQ(message == "none", alone && context.mesh.dp_rank == 0) << message;
      EXPECT_EQ(learner.engine.predict(rows.micro().input).shape,
                Shape({2, kRefusedShape.context, kRefusedShape.vocabulary}));
      EXPECT_EQ(learner.step(rows).step, 1);
    });
}

// A layer of one rank throws in the middle of a step. All ranks stop.
TEST(Engines, StopOnAnErrorInTheMiddleOfAStepOfAnyRank) {
  on_ranks(2, Wire::local, [](RankContext& context) {
    bool fails = false;
    Engine engine(failing_gpt(kRefusedShape, fails), {.dp = 2, .zero = 1}, context.mesh,
                  context.device, {});
    engine.initialize(1);
    Rows rows = rows_of(kRefusedShape, 0, 0, 2);
    const MicroBatch micro = rows.micro();
    const auto step = [&] { engine.step(std::span(&micro, 1)); };
    step();
    fails = context.mesh.dp_rank == 1;
    std::string first = "none";
    try {
      step();
    } catch (const std::exception& e) {
      first = e.what();
    }
    EXPECT_TRUE(says(first, "the layer failed")) << first;  // rank 0 gets it too
    fails = false;
    const std::string later = message_of(step);
    EXPECT_TRUE(says(later, "this engine stopped in step() after step 1")) << later;
    EXPECT_TRUE(says(later, "make a new engine")) << later;
    EXPECT_TRUE(says(message_of([&] { engine.snapshot(); }), "stopped"));
  });
}

TEST(Engines, DoNotWaitForeverForARankThatDoesNotCome) {
  std::latch ended(1);
  on_ranks(2, Wire::local, [&](RankContext& context) {
    Learner learner(context, {.dp = 2, .zero = 3});
    context.mesh.world->set_timeout(std::chrono::milliseconds(200));
    if (context.mesh.dp_rank == 1) return ended.wait();  // alive, but makes no call
    Rows rows = rows_of(kRefusedShape, 0, 0, 2);
    const Time begun = steady_now();
    const std::string message = message_of([&] { learner.step(rows); });
    ended.count_down();
    EXPECT_TRUE(says(message, "rank 1")) << message;
    EXPECT_GE(steady_now() - begun, std::chrono::milliseconds(200)) << "a timeout";
    EXPECT_TRUE(says(message_of([&] { learner.step(rows); }), "this engine stopped"));
  });
}

TEST(Engines, EndWithARankThatLeaves) {
  on_ranks(2, Wire::local, [](RankContext& context) {
    Learner learner(context, {.dp = 2, .zero = 3});
    if (context.mesh.dp_rank == 1) return;
    Rows rows = rows_of(kRefusedShape, 0, 0, 2);
    EXPECT_TRUE(says(message_of([&] { learner.step(rows); }), "rank 1"));
  });
}

}  // namespace
}  // namespace troupe::train::testing
