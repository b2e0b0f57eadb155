// A plan's numbers against those of an engine that has run.
#include "tests/train/engine/ranks.hpp"
#include "troupe/train/engine/model_plan.hpp"

#include <algorithm>

namespace troupe::train::testing {
namespace {

constexpr GptShape kPlannedShape{
    .vocabulary = 61, .context = 16, .layers = 3, .heads = 2, .channels = 24};
constexpr std::int64_t kBatch = 8;

Spec input_of(const Layout& layout) {
  return {DType::i32, {kBatch / layout.dp / layout.micro, kPlannedShape.context}};
}

Plan plan_of(const Layout& layout, const OptimizerOptions& optimizer) {
  const PlannedModel model = planned([] { return gpt(kPlannedShape); }, input_of, optimizer);
  return plan(model, layout);
}

void expect_equal(const Store::Bytes& engine, const Store::Bytes& planned) {
  EXPECT_EQ(engine.weights, planned.weights);
  EXPECT_EQ(engine.gradients, planned.gradients);
  EXPECT_EQ(engine.moments, planned.moments);
  EXPECT_EQ(engine.tied, planned.tied);
  EXPECT_EQ(engine.padding, planned.padding);
  EXPECT_EQ(engine.host, planned.host);
  EXPECT_EQ(engine.peak_transient, planned.peak_transient);
}

/// Runs a step and holds what the engine, the device and the communicator count against the plan.
void expect_as_planned(const Layout& layout, const OptimizerOptions& optimizer) {
  const Plan planned = plan_of(layout, optimizer);
  on_ranks(layout.dp, Wire::local, [&](RankContext& context) {
    Engine engine(gpt(kPlannedShape), layout, context.mesh, context.device, optimizer);
    engine.initialize(1);
    const auto traffic = [&] {
      if (context.mesh.dp == nullptr) return collective::Traffic{};
      context.mesh.dp->barrier();  // behind what was begun
      return context.mesh.dp->traffic();
    };
    const collective::Traffic before = traffic();
    std::vector<Rows> parts =
        share_of(kPlannedShape, 0, kBatch, context.mesh.dp_rank, layout.dp, layout.micro);
    engine.step(micros_of(parts));
    const collective::Traffic after = traffic();
    SCOPED_TRACE(layout_text(layout));
    const auto expect_moved = [](std::uint64_t begin, std::uint64_t end, std::uint64_t bytes) {
      // Counters round down once, from their group's beginning.
      EXPECT_NEAR(static_cast<double>(end - begin), static_cast<double>(bytes), 1.0);
    };
    expect_moved(before.all_reduce, after.all_reduce, planned.traffic.all_reduce);
    expect_moved(before.reduce_scatter, after.reduce_scatter, planned.traffic.reduce_scatter);
    expect_moved(before.all_gather, after.all_gather, planned.traffic.all_gather);
    expect_moved(before.norm, after.norm, planned.traffic.norm);
    expect_moved(before.padding, after.padding, planned.traffic.padding);
    expect_equal(engine.bytes().store, planned.store);
    EXPECT_EQ(engine.bytes().activations, planned.activations);
    EXPECT_EQ(context.device.allocated().peak_device, planned.device_bytes());
    EXPECT_EQ(context.device.allocated().host, planned.store.host);
    EXPECT_EQ(context.device.allocated().pinned, planned.staging);
  });
}

TEST(Plan, IsWhatTheEngineCountsInEveryLayout) {
  for (const int dp : {1, 2, 4})
    for (int zero = 0; zero <= 3; ++zero)
      for (const int micro : {1, 2})
        for (const Recompute recompute : {Recompute::none, Recompute::full})
          expect_as_planned({.dp = dp, .zero = zero, .micro = micro, .recompute = recompute}, {});
}

TEST(Plan, IsWhatTheEngineCountsWithMoreMicroBatchesThanAreRehearsed) {
  for (int zero = 0; zero <= 3; ++zero) expect_as_planned({.dp = 2, .zero = zero, .micro = 4}, {});
}

TEST(Plan, OfActivationsThatAreNo64BitNumberIsRefused) {
  const Model model = gpt({.layers = 200, .channels = 1600});
  const Layout layout;
  index_of(model, layout);
  for (const std::int64_t batch :
       {std::int64_t{1} << 40, std::int64_t{1} << 50, std::int64_t{1} << 57, std::int64_t{1} << 62})
    EXPECT_THROW(activation_bytes(model, layout, {DType::i32, {batch, 16}}), InvalidArgument)
        << batch;
  EXPECT_GT(activation_bytes(model, layout, {DType::i32, {1 << 20, 16}}), std::int64_t{1} << 40);
}

TEST(Plan, IsWhatTheEngineCountsWithOffloadAndOtherOptimizers) {
  const OptimizerOptions sgd{.kind = OptimizerKind::sgd, .momentum = 0.9f};
  const OptimizerOptions plain{.kind = OptimizerKind::sgd};
  for (const OptimizerOptions& optimizer : {OptimizerOptions{}, sgd, plain})
    for (const int zero : {0, 1, 3})
      expect_as_planned({.dp = 2, .zero = zero, .offload = Offload::optimizer}, optimizer);
}

TEST(Plan, AnOutOfMemorySentenceOffersWhatNeedsLessOnTheSameRanks) {
  const Layout layout{.dp = 2};
  const Spec in = input_of(layout);
  const Plan wanted = plan_of(layout, {});
  const std::string text = memory_sentence(gpt(kPlannedShape), layout, &in, {});
  EXPECT_EQ(text.find("dp=2 zero=0 needs " + size_text(wanted.device_bytes())), 0u) << text;
  EXPECT_NE(text.find("activations " + size_text(wanted.activations)), std::string::npos) << text;
  EXPECT_NE(text.find("these fit: dp=2 zero=1 ("), std::string::npos) << text;
  const std::string unknown = memory_sentence(gpt(kPlannedShape), layout, nullptr, {});
  EXPECT_EQ(unknown.find("activations"), std::string::npos) << unknown;
  const std::vector<Plan> all =
      plans_that_fit(planned([] { return gpt(kPlannedShape); }, input_of, {}),
                     {.memory = wanted.device_bytes(), .ranks = {2}, .most_tp = 2, .most_pp = 2});
  const auto least = std::min_element(all.begin(), all.end(), [](const Plan& a, const Plan& b) {
    return a.device_bytes() < b.device_bytes();
  });
  EXPECT_NE(
      memory_sentence(gpt(kPlannedShape), least->layout, &in, {}).find("no other layout fits"),
      std::string::npos);
}

template <class F>
std::string memory_error_of(F&& call) {
  try {
    std::forward<F>(call)();
  } catch (const OutOfMemory& error) {
    return error.message();
  }
  return "none";
}

TEST(Plan, IsSaidByAnEngineWhoseWeightsDoNotFit) {
  on_ranks(2, Wire::local, [](RankContext& context) {
    // 2^47 bytes of weights: more than a process can address.
    const GptShape huge{.vocabulary = std::int64_t{1} << 40, .layers = 1, .channels = 32};
    const std::string text =
        memory_error_of([&] { Engine(gpt(huge), {.dp = 2}, context.mesh, context.device, {}); });
    EXPECT_NE(text.find("has no room for"), std::string::npos) << text;
    EXPECT_NE(text.find("dp=2 zero=0 needs 640"), std::string::npos) << text;
    EXPECT_NE(text.find("these fit: dp=2 zero=1 ("), std::string::npos) << text;
  });
}

TEST(Plan, IsSaidByAStepWhoseActivationsDoNotFit) {
  on_ranks(1, Wire::local, [](RankContext& context) {
    Engine engine(gpt(kPlannedShape), {}, context.mesh, context.device, {});
    engine.initialize(1);
    std::int32_t token = 0;
    const Shape shape{std::int64_t{1} << 40, kPlannedShape.context};
    const MicroBatch micro{.input = {&token, DType::i32, shape},
                           .targets = {&token, DType::i32, shape}};
    const std::string text = memory_error_of([&] { engine.step(std::span(&micro, 1)); });
    EXPECT_NE(text.find("dp=1 zero=0 needs"), std::string::npos) << text;
    EXPECT_NE(text.find("activations"), std::string::npos) << text;
    EXPECT_NE(text.find("dp=1 zero=0 recompute=full ("), std::string::npos) << text;
    EXPECT_EQ(engine.steps(), 0);
    for (const std::string& other :
         {memory_error_of([&] { engine.evaluate(std::span(&micro, 1)); }),
          memory_error_of([&] { engine.predict(micro.input); })})
      EXPECT_NE(other.find("dp=1 zero=0 needs"), std::string::npos) << other;
  });
}

/// Has no room for the values that it makes, or for its prediction.
class Greedy final : public Layer {
 public:
  Greedy() : Layer("greedy") {}
  void declare(Index& index, int unit, const Layout&) override {
    index.add(unit, "w", {8}, Group::decay);
  }
  void initialize(const Run& run, const Tensors&) const override {
    run.device.allocate(std::size_t{1} << 50);
  }
  Need need(const Spec& in, const Layout&) const override {
    return {.out = {DType::f32, {in.shape[0]}}};
  }
  void forward(const Run&, const Tensors&, TensorView, TensorView, TensorView,
               TensorView) const override {}
  void backward_input(const Run&, const Tensors&, TensorView, TensorView, TensorView, TensorView,
                      TensorView, TensorView) const override {}
  void backward_weight(const Run&, const Tensors&, TensorView, TensorView, TensorView, TensorView,
                       TensorView) const override {}
  double flops(const Spec&) const override { return 0; }
  bool is_loss() const noexcept override { return true; }
};

TEST(Plan, IsSaidByInitialize) {
  on_ranks(1, Wire::local, [](RankContext& context) {
    Model model;
    model.push_back(std::make_unique<Greedy>());
    Engine engine(std::move(model), {}, context.mesh, context.device, {});
    const std::string text = memory_error_of([&] { engine.initialize(1); });
    EXPECT_NE(text.find("dp=1 zero=0 needs"), std::string::npos) << text;
  });
}

}  // namespace
}  // namespace troupe::train::testing
