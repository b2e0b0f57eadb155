// Tests a plan's numbers against those of an engine that has run.
#include "tests/train/engine/ranks.hpp"
#include "troupe/train/engine/model_plan.hpp"

#include <algorithm>

namespace troupe::train::testing {
namespace {

constexpr GptShape kPlannedShape{
    .vocabulary = 61, .context = 16, .layers = 3, .heads = 2, .channels = 24};
constexpr std::int64_t kPlannedBatch = 8;

/// A shape that 2 and 4 ranks divide, and 2 and 4 stages.
constexpr GptShape kDividedShape{
    .vocabulary = 61, .context = 16, .layers = 4, .heads = 4, .channels = 32};

Spec input_of(const Layout& layout) {
  return {DType::i32, {kPlannedBatch / layout.dp / layout.micro, kPlannedShape.context}};
}

PlannedModel model_of(const GptShape& shape, const OptimizerOptions& optimizer) {
  return planned([shape] { return gpt(shape); }, input_of, optimizer);
}

Plan plan_of(const Layout& layout, const OptimizerOptions& optimizer) {
  return plan(model_of(kPlannedShape, optimizer), layout);
}

void expect_equal(const Store::Bytes& engine, const Store::Bytes& planned) {
  EXPECT_EQ(engine.weights, planned.weights);
  EXPECT_EQ(engine.master, planned.master);
  EXPECT_EQ(engine.copies, planned.copies);
  EXPECT_EQ(engine.gradients, planned.gradients);
  EXPECT_EQ(engine.moments, planned.moments);
  EXPECT_EQ(engine.tied, planned.tied);
  EXPECT_EQ(engine.padding, planned.padding);
  EXPECT_EQ(engine.host, planned.host);
  EXPECT_EQ(engine.peak_transient, planned.peak_transient);
}

collective::Traffic traffic_of(const std::unique_ptr<collective::Communicator>& group) {
  if (group == nullptr) return {};
  group->barrier();  // waits for operations that have begun
  return group->traffic();
}

/// The bytes that each group of a rank has moved.
struct Moved {
  collective::Traffic dp, tp, pp, tied;
  explicit Moved(const collective::Mesh& mesh)
      : dp(traffic_of(mesh.dp)),
        tp(traffic_of(mesh.tp)),
        pp(traffic_of(mesh.pp)),
        tied(traffic_of(mesh.tied)) {}
};

/// Expects `bytes` between the two counts. Counters round down once, from their group's
/// beginning.
void expect_moved(std::uint64_t begin, std::uint64_t end, std::uint64_t bytes) {
  EXPECT_NEAR(static_cast<double>(end - begin), static_cast<double>(bytes), 1.0);
}

void expect_payload(const collective::Traffic& before, const collective::Traffic& after,
                    const collective::Traffic& planned) {
  expect_moved(before.all_reduce, after.all_reduce, planned.all_reduce);
  expect_moved(before.reduce_scatter, after.reduce_scatter, planned.reduce_scatter);
  expect_moved(before.all_gather, after.all_gather, planned.all_gather);
  expect_moved(before.send, after.send, planned.send);
  expect_moved(before.broadcast, after.broadcast, planned.broadcast);
}

/// Runs a step and compares the counts of each rank's engine, device and communicators with its
/// plan.
void expect_as_planned(const GptShape& shape, const Layout& layout,
                       const OptimizerOptions& optimizer) {
  on_mesh(mesh_of(layout), Wire::local, [&](RankContext& context) {
    const RankPlace rank{.tp = context.mesh.tp_rank, .pp = context.mesh.pp_rank};
    const Plan planned = plan(model_of(shape, optimizer), layout, rank);
    Engine engine(gpt(shape), layout, context.mesh, context.device, optimizer);
    engine.initialize(1);
    const Moved before(context.mesh);
    std::vector<Rows> parts =
        share_of(shape, 0, kPlannedBatch, context.mesh.dp_rank, layout.dp, layout.micro);
    engine.step(micros_of(parts));
    const Moved after(context.mesh);
    SCOPED_TRACE(layout_text(layout) + " rank " + std::to_string(context.mesh.rank()));
    expect_payload(before.dp, after.dp, planned.traffic);
    expect_moved(before.dp.padding, after.dp.padding, planned.traffic.padding);
    expect_moved(before.dp.norm, after.dp.norm, planned.traffic.norm);
    expect_payload(before.tp, after.tp, planned.exchanges.tp);
    expect_payload(before.pp, after.pp, planned.exchanges.pp);
    expect_payload(before.tied, after.tied, planned.exchanges.tied);
    expect_equal(engine.bytes().store, planned.store);
    EXPECT_EQ(engine.bytes().activations, planned.activations);
    EXPECT_EQ(context.device.allocated().peak_device, planned.device_bytes());
    EXPECT_EQ(context.device.allocated().host, planned.store.host);
    EXPECT_EQ(context.device.allocated().pinned, planned.staging);
  });
}

void expect_as_planned(const Layout& layout, const OptimizerOptions& optimizer) {
  expect_as_planned(kPlannedShape, layout, optimizer);
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

TEST(Plan, IsWhatTheEngineCountsOnTensorParallelRanks) {
  for (const int tp : {2, 4})
    for (const bool sequence : {false, true})
      for (const Recompute recompute : {Recompute::none, Recompute::full})
        for (const int micro : {1, 2})
          expect_as_planned(
              kDividedShape,
              {.tp = tp, .micro = micro, .sequence = sequence, .recompute = recompute}, {});
}

TEST(Plan, IsWhatTheEngineCountsOnEveryRankOfAPipeline) {
  for (const char* const schedule : {"gpipe", "1f1b", "interleaved"})
    for (const Recompute recompute : {Recompute::none, Recompute::full})
      expect_as_planned(kDividedShape,
                        {.pp = 2, .micro = 4, .recompute = recompute, .schedule = schedule}, {});
  expect_as_planned(kDividedShape, {.pp = 4, .micro = 8}, {});
}

TEST(Plan, IsWhatTheEngineCountsOnAMesh) {
  for (const int zero : {0, 1})
    for (const bool sequence : {false, true})
      expect_as_planned(kDividedShape,
                        {.dp = 2, .tp = 2, .pp = 2, .zero = zero, .micro = 2, .sequence = sequence},
                        {});
  for (const int zero : {2, 3})
    expect_as_planned(kDividedShape, {.dp = 2, .tp = 2, .zero = zero, .micro = 2, .sequence = true},
                      {});
}

TEST(Plan, IsWhatTheEngineCountsIn16Bits) {
  const auto expect = [](Layout layout) {
    layout.compute = layout.pp == 2 ? DType::f16 : DType::bf16;
    expect_as_planned(kDividedShape, layout, {});
  };
  for (int zero = 0; zero <= 3; ++zero) {
    expect({.dp = 2, .zero = zero, .micro = 2});
    expect({.dp = 2, .zero = zero, .micro = 2, .recompute = Recompute::selective});
    expect({.dp = 4, .zero = zero, .offload = Offload::optimizer, .recompute = Recompute::full});
  }
  for (const bool sequence : {false, true}) {
    expect({.tp = 2, .micro = 2, .sequence = sequence});
    expect({.dp = 2, .tp = 2, .zero = 3, .sequence = sequence});
  }
  for (const char* const schedule : {"gpipe", "interleaved"})
    expect({.pp = 2, .micro = 4, .schedule = schedule});
  expect({.dp = 2, .tp = 2, .pp = 2, .zero = 1, .micro = 2, .sequence = true});
}

/// Returns the bytes of a micro-batch's activations between two layers.
std::int64_t stream_bytes(const Layout& layout) {
  return 4 * input_of(layout).shape.count() * kDividedShape.channels;
}

// Each block sums activations four times. Full recompute runs all blocks but the last again,
// which adds two sums each. The embedding and the head add one sum each, and the divided cross
// entropy adds its statistics.
TEST(Plan, OfTensorParallelRanksHasThePayloadOfTheLiterature) {
  for (const int tp : {2, 4})
    for (const bool sequence : {false, true})
      for (const Recompute recompute : {Recompute::none, Recompute::full}) {
        const Layout layout{.tp = tp, .micro = 2, .sequence = sequence, .recompute = recompute};
        const Plan one = plan(model_of(kDividedShape, {}), layout);
        const std::int64_t blocks = kDividedShape.layers, channels = kDividedShape.channels,
                           rows = input_of(layout).shape.count();
        const std::int64_t sums =
            4 * blocks + (recompute == Recompute::full ? 2 * (blocks - 1) : 0) + 2;
        const std::int64_t statistics = 12 * rows * tp;
        // Weights and biases of norms, and biases of the products whose results are summed.
        const std::int64_t partial = sequence ? 4 * (6 * blocks + 2) * channels : 0;
        const std::int64_t twice =
            layout.micro * (2 * sums * stream_bytes(layout) + statistics) + 2 * partial;
        EXPECT_EQ(one.exchanges.tp.payload(), static_cast<std::uint64_t>(twice * (tp - 1) / tp))
            << layout_text(layout);
        EXPECT_EQ(one.exchanges.pp.payload(), 0u);
      }
}

TEST(Plan, OfAPipelineSendsOneActivationABoundaryDirectionAndMicroBatch) {
  const Layout layout{.pp = 4, .micro = 8};
  for (int rank = 0; rank < 4; ++rank) {
    const Exchanges moved = plan(model_of(kDividedShape, {}), layout, {.pp = rank}).exchanges;
    const std::int64_t neighbours = rank == 0 || rank == 3 ? 1 : 2;
    EXPECT_EQ(moved.pp.payload(),
              static_cast<std::uint64_t>(neighbours * layout.micro * stream_bytes(layout)));
    const bool tied = rank == 0 || rank == 3;  // weights one way, their gradient the other
    EXPECT_EQ(
        moved.tied.payload(),
        tied ? 4u * static_cast<unsigned>(kDividedShape.vocabulary * kDividedShape.channels) : 0u);
  }
}

TEST(Plan, OfAPipelineIsThatOfTheRankThatNeedsTheMost) {
  const Layout layout{.pp = 4, .micro = 8};
  const PlannedModel model = model_of(kDividedShape, {});
  const Plan most = plan(model, layout);
  std::vector<std::int64_t> bytes;
  for (int rank = 0; rank < 4; ++rank)
    bytes.push_back(plan(model, layout, {.pp = rank}).device_bytes());
  EXPECT_EQ(most.device_bytes(), *std::max_element(bytes.begin(), bytes.end()));
  EXPECT_EQ(bytes[static_cast<std::size_t>(most.rank.pp)], most.device_bytes());
  EXPECT_LT(*std::min_element(bytes.begin(), bytes.end()), most.device_bytes());
}

TEST(Plan, SearchTriesMeshesThatTheModelAllows) {
  const PlanSearch search{.memory = std::int64_t{1} << 40,
                          .ranks = {8},
                          .most_dp = 4,
                          .most_tp = 8,
                          .most_pp = 8,
                          .base = {.micro = 2}};
  std::vector<std::string> meshes;
  for (const Plan& one : plans_that_fit(model_of(kDividedShape, {}), search)) {
    const Layout& layout = one.layout;
    EXPECT_EQ(layout.sequence, layout.tp > 1);
    const std::string text = std::to_string(layout.dp) + "x" + std::to_string(layout.tp) + "x" +
                             std::to_string(layout.pp);
    if (meshes.empty() || meshes.back() != text) meshes.push_back(text);
  }
  // dp x tp x pp. There are four heads and four blocks, so neither tp nor pp is 8; there are
  // eight samples in two micro-batches.
  EXPECT_EQ(meshes, (std::vector<std::string>{"4x1x2", "4x2x1", "2x1x4", "2x2x2", "2x4x1", "1x2x4",
                                              "1x4x2"}));
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
    // 2^47 bytes of weights are more than a process can address.
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

/// A layer without room for the values that it makes, or for its prediction.
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
