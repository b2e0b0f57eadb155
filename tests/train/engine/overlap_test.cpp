// Tests that communication runs beside backward, on a wire that sleeps and with layers that
// sleep, so that neither needs a CPU.
#include "tests/train/engine/ranks.hpp"
#include "troupe/runtime/base/clock.hpp"

#include <algorithm>
#include <chrono>

namespace troupe::train::testing {
namespace {

using std::chrono::milliseconds;

constexpr Duration kPass = milliseconds(10);
constexpr std::int64_t kWide = 64 * 1024;
constexpr int kLayers = 30;

/// A layer y = x with `size` weights that it requests and does not use. Its passes sleep, like
/// the host during a device's pass.
class Slow final : public Layer {
 public:
  Slow(std::string name, std::int64_t size, Duration forward)
      : Layer(std::move(name)), size_(size), forward_(forward) {}
  void declare(Index& index, int unit, const Layout&) override {
    id_ = index.add(unit, name() + ".weight", {size_}, Group::decay);
  }
  void initialize(const Run& run, const Tensors& w) const override { fill_value(run, w, id_, 1); }
  Need need(const Spec& in, const Layout&) const override { return {.out = in}; }
  void forward(const Run& run, const Tensors& w, TensorView x, TensorView y, TensorView,
               TensorView) const override {
    EXPECT_GT(w[id_].as<float>()[size_ - 1], 0.9f);
    std::this_thread::sleep_for(forward_);  // the simulated computation
    run.device.copy(run.queue(), y.data, x.data, static_cast<std::size_t>(x.bytes()));
  }
  void backward_input(const Run& run, const Tensors&, TensorView dy, TensorView, TensorView,
                      TensorView, TensorView, TensorView dx) const override {
    std::this_thread::sleep_for(kPass);  // the simulated computation
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
  Duration forward_;
  TensorId id_ = -1;
};

/// Returns a model of wide layers between a small one and the loss.
Model slow_model(Duration forward) {
  Model model;
  model.push_back(std::make_unique<Slow>("small", 64, forward));
  for (int i = 0; i < kLayers; ++i)
    model.push_back(std::make_unique<Slow>("wide." + std::to_string(i), kWide, forward));
  model.push_back(std::make_unique<layers::SoftmaxLoss>("loss"));
  return model;
}

/// Times of a pass and its communication: both together, and each alone. Waiting inside the pass
/// counts as much as waiting after it.
struct Observed {
  StepTrace trace = {};
  Duration together{}, computation{}, communication{};

  /// Returns the part of the time that computation and communication did share, of the time that
  /// they could share.
  double hidden() const {
    return std::chrono::duration<double>(computation + communication - together) /
           std::chrono::duration<double>(std::min(communication, computation));
  }
};

/// Two engines of a rank over the same layers: one with a partner, and one alone.
struct Pair {
  Pair(RankContext& context, int zero, Duration forward)
      : dp(*context.mesh.dp),
        engine(slow_model(forward), {.dp = 2, .zero = zero}, context.mesh, context.device, {}),
        alone(slow_model(forward), {}, nobody, context.device, {}) {
    engine.initialize(1);
    alone.initialize(1);
  }

  std::span<const MicroBatch> micros() const { return std::span(&micro, 1); }

  /// Returns the time that the wire takes for one operation on every unit.
  template <class F>
  Duration all_units(F&& operate) {
    std::vector<float> slab;
    dp.barrier();
    const Time start = steady_now();
    for (const UnitPlace& unit : engine.index().units()) {
      slab.resize(static_cast<std::size_t>(unit.size));
      if (unit.size != 0) operate(slab).wait();
    }
    return steady_now() - start;
  }

  Observed backward() {
    dp.barrier();
    engine.step(micros());
    Observed observed{.trace = engine.trace()};
    observed.together = observed.trace.backward + observed.trace.exposed;
    observed.communication = all_units([this](std::vector<float>& slab) {
      return engine.layout().zero == 0
                 ? dp.all_reduce(slab)
                 : dp.reduce_scatter(slab, std::span(slab).first(slab.size() / 2));
    });
    alone.step(micros());
    observed.computation = alone.trace().backward;
    return observed;
  }

  Observed forward() {
    Observed observed;
    dp.barrier();
    Time start = steady_now();
    engine.evaluate(micros());
    observed.together = steady_now() - start;
    observed.communication = all_units([this](std::vector<float>& slab) {
      return dp.all_gather(std::span<const float>(slab).first(slab.size() / 2), slab);
    });
    start = steady_now();
    alone.evaluate(micros());
    observed.computation = steady_now() - start;
    return observed;
  }

  std::vector<float> x = std::vector<float>(8, 0.5f);
  std::vector<std::int32_t> targets = {1, 1};
  MicroBatch micro{.input = {x.data(), DType::f32, {2, 4}},
                   .targets = {targets.data(), DType::i32, {2}}};
  collective::Communicator& dp;
  collective::Mesh nobody;
  Engine engine, alone;
};

/// Observes three passes and returns the shortest of each time: other programs on the machine
/// only make times longer. The wire needs `share` of a layer's pass for its operation.
Observed observe(double share, int zero, Observed (Pair::*pass)() = &Pair::backward) {
  const double seconds = std::chrono::duration<double>(kPass).count() * share;
  const double bytes = 4.0 * kWide * (zero == 0 ? 1 : 0.5);  // 2 ranks: 2(N-1)/N or (N-1)/N
  std::vector<Observed> all;
  const RankBody body = [&](RankContext& context) {
    Pair pair(context, zero, pass == &Pair::forward ? kPass : Duration{});
    for (int i = 0; i < 3; ++i) {
      const Observed one = (pair.*pass)();
      if (context.mesh.dp_rank == 0) all.push_back(one);
    }
  };
  on_ranks(2, Wire::local, body, {.link = {.bytes_per_second = bytes / seconds}});
  Observed best = all.at(0);
  for (const Observed& one : all) {
    best.together = std::min(best.together, one.together);
    best.computation = std::min(best.computation, one.computation);
    best.communication = std::min(best.communication, one.communication);
  }
  return best;
}

TEST(Overlap, HidesNineTenthsOfTheReductionsBehindBackward) {
  for (const int zero : {0, 2}) {
    const Observed o = observe(0.75, zero);
    EXPECT_GE(o.computation, (kLayers + 1) * kPass);
    EXPECT_GE(o.communication, kPass * kLayers * 3 / 4);
    RecordProperty("hidden_percent_zero_" + std::to_string(zero),
                   static_cast<int>(100 * o.hidden()));
    EXPECT_GE(o.hidden(), 0.9) << "zero = " << zero;
  }
}

TEST(Overlap, HidesNineTenthsOfTheGathersBehindForward) {
  const Observed o = observe(0.75, 3, &Pair::forward);
  EXPECT_GE(o.communication, kPass * kLayers * 3 / 4);
  RecordProperty("hidden_percent", static_cast<int>(100 * o.hidden()));
  EXPECT_GE(o.hidden(), 0.9);
}

TEST(Overlap, HidesNineTenthsOfBackwardBehindASlowerWire) {
  const Observed o = observe(1.5, 0);
  EXPECT_GE(o.hidden(), 0.9);
  EXPECT_GT(o.trace.exposed, o.communication / 5);  // no overlap can hide this part
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
