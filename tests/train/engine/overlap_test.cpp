// Communication runs beside backward: on a wire that sleeps, with layers that sleep, so that
// neither needs a CPU.
#include "tests/train/engine/ranks.hpp"
#include "troupe/runtime/base/clock.hpp"

#include <algorithm>
#include <chrono>

namespace troupe::train::testing {
namespace {

using std::chrono::milliseconds;

constexpr Duration kBackward = milliseconds(10);
constexpr std::int64_t kWide = 64 * 1024;
constexpr int kLayers = 30;

/// y = x, with `size` weights that it does not look at. Its backward takes time as a device's does.
class Slow final : public Layer {
 public:
  Slow(std::string name, std::int64_t size) : Layer(std::move(name)), size_(size) {}
  void declare(Index& index, int unit, const Layout&) override {
    id_ = index.add(unit, name() + ".weight", {size_}, Group::decay);
  }
  void initialize(const Run& run, const Tensors& w) const override { fill_value(run, w, id_, 1); }
  Need need(const Spec& in, const Layout&) const override { return {.out = in}; }
  void forward(const Run& run, const Tensors&, TensorView x, TensorView y, TensorView,
               TensorView) const override {
    run.device.copy(run.queue(), y.data, x.data, static_cast<std::size_t>(x.bytes()));
  }
  void backward_input(const Run& run, const Tensors&, TensorView dy, TensorView, TensorView,
                      TensorView, TensorView, TensorView dx) const override {
    std::this_thread::sleep_for(kBackward);  // what it simulates
    if (dx.data != nullptr)
      run.device.copy(run.queue(), dx.data, dy.data, static_cast<std::size_t>(dy.bytes()));
  }
  void backward_weight(const Run&, const Tensors& g, TensorView, TensorView, TensorView, TensorView,
                       TensorView) const override {
    g[id_].as<float>()[0] += 1;
  }
  double flops(const Spec&) const override { return 0; }

 private:
  std::int64_t size_;
  TensorId id_ = -1;
};

/// Wide layers between a small one and the loss.
Model slow_model() {
  Model model;
  model.push_back(std::make_unique<Slow>("small", 64));
  for (int i = 0; i < kLayers; ++i)
    model.push_back(std::make_unique<Slow>("wide." + std::to_string(i), kWide));
  model.push_back(std::make_unique<layers::SoftmaxLoss>("loss"));
  return model;
}

/// Backward and the step's reductions: together, and each with nothing beside it. Waits inside of
/// backward count as much as those behind it.
struct Observed {
  StepTrace trace;
  Duration together{}, backward{}, communication{};

  /// Of the time that backward and communication could share, how much they did.
  double hidden() const {
    return std::chrono::duration<double>(backward + communication - together) /
           std::chrono::duration<double>(std::min(communication, backward));
  }
};

Duration reductions_alone(const Engine& engine, collective::Communicator& dp) {
  std::vector<float> slab;
  dp.barrier();
  const Time start = steady_now();
  for (const UnitPlace& unit : engine.index().units()) {
    slab.resize(static_cast<std::size_t>(unit.size));
    const std::size_t part = slab.size() / 2;
    if (unit.size == 0) continue;
    if (engine.layout().zero == 0)
      dp.all_reduce(slab).wait();
    else
      dp.reduce_scatter(slab, std::span(slab).first(part)).wait();
  }
  return steady_now() - start;
}

Observed observe_step(Engine& engine, Engine& alone, collective::Communicator& dp) {
  std::vector<float> x(8, 0.5f);
  std::vector<std::int32_t> targets(2, 1);
  const MicroBatch micro{.input = {x.data(), DType::f32, {2, 4}},
                         .targets = {targets.data(), DType::i32, {2}}};
  dp.barrier();
  engine.step(std::span(&micro, 1));
  Observed observed{.trace = engine.trace()};
  observed.together = observed.trace.backward + observed.trace.exposed;
  observed.communication = reductions_alone(engine, dp);
  alone.step(std::span(&micro, 1));
  observed.backward = alone.trace().backward;
  return observed;
}

/// The median of three steps, by what is hidden. The wire takes `share` of a layer's backward for
/// the reduction of a wide layer.
Observed observe(double share, int zero) {
  const double seconds = std::chrono::duration<double>(kBackward).count() * share;
  const double bytes = 4.0 * kWide * (zero == 0 ? 1 : 0.5);  // of 2 ranks: 2(N-1)/N, (N-1)/N
  std::vector<Observed> all;
  const RankBody body = [&](RankContext& context) {
    collective::Mesh nobody;
    Engine engine(slow_model(), {.dp = 2, .zero = zero}, context.mesh, context.device, {});
    Engine alone(slow_model(), {}, nobody, context.device, {});
    engine.initialize(1);
    alone.initialize(1);
    for (int i = 0; i < 3; ++i) {
      const Observed one = observe_step(engine, alone, *context.mesh.dp);
      if (context.mesh.dp_rank == 0) all.push_back(one);
    }
  };
  on_ranks(2, Wire::local, body, {.link = {.bytes_per_second = bytes / seconds}});
  std::sort(all.begin(), all.end(),
            [](const Observed& a, const Observed& b) { return a.hidden() < b.hidden(); });
  return all.at(1);
}

TEST(Overlap, HidesNineTenthsOfTheReductionsBehindBackward) {
  for (const int zero : {0, 2}) {
    const Observed o = observe(0.75, zero);
    EXPECT_GE(o.backward, (kLayers + 1) * kBackward);
    EXPECT_GE(o.communication, kBackward * kLayers * 3 / 4);
    RecordProperty("hidden_percent_zero_" + std::to_string(zero),
                   static_cast<int>(100 * o.hidden()));
    EXPECT_GE(o.hidden(), 0.9) << "zero = " << zero;
  }
}

TEST(Overlap, HidesNineTenthsOfBackwardBehindASlowerWire) {
  const Observed o = observe(1.5, 0);
  EXPECT_GE(o.hidden(), 0.9);
  EXPECT_GT(o.trace.exposed, o.communication / 5);  // what no overlap can hide
}

TEST(Overlap, SubmitsFourFifthsOfTheBytesBeforeBackwardEnds) {
  const Observed o = observe(0.1, 0);
  EXPECT_EQ(o.trace.bytes_reduced, 4 * (kLayers * kWide + 64));
  EXPECT_GE(static_cast<double>(o.trace.bytes_before_end),
            0.8 * static_cast<double>(o.trace.bytes_reduced));
  EXPECT_LT(o.trace.bytes_before_end, o.trace.bytes_reduced);
}

}  // namespace
}  // namespace troupe::train::testing
