// The suite "train": a training step of a GPT-2 on CPUs, alone, with threads, and on two ranks; the
// links between ranks on different nodes; and gangs.
// Each step runs in a process of its own (train_step). The processes take turns on command.
#include "suite.hpp"

#include "tools.hpp"
#include "train/gangs.hpp"
#include "train/link_stream.hpp"
#include "train/nodes_sum.hpp"
#include "train/peer.hpp"
#include "train/reduction_floor.hpp"
#include "troupe/kernels/gemm/gemm.hpp"
#include "troupe/kernels/philox/philox.hpp"

#include <unistd.h>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <string>
#include <vector>

namespace troupe::bench {
namespace {

constexpr const char* kShape = "4x128x64x12";
constexpr const char* kLargeShape = "6x384x256x4";
constexpr const char* kWideShape = "6x384x256x8";  // its batch can be divided over stages
constexpr const char* kQuickShape = "2x64x16x4";
constexpr int kMicros = 4;

/// Returns the seconds that a step's matrix products take alone. Each product is as large as
/// those of the block's MLP.
double products(const char* shape_text) {
  const bool large = shape_text == kLargeShape;
  const std::int64_t rows = large ? 4 * 256 : 12 * 64, channels = large ? 384 : 128;
  const std::int64_t layers = large ? 6 : 4;
  // Forward, input gradient and weight gradient of qkv, projection, up and down. The unit is one
  // product of `up`.
  const double per_step = 3 * static_cast<double>(layers) * (0.75 + 0.25 + 1 + 1);
  std::vector<float> x(static_cast<std::size_t>(rows * channels)),
      w(static_cast<std::size_t>(4 * channels * channels)),
      y(static_cast<std::size_t>(4 * rows * channels));
  kernels::philox_normal(x.data(), rows * channels, 1, 1, 0, 0, 1);
  kernels::philox_normal(w.data(), 4 * channels * channels, 1, 2, 0, 0, 1);
  const double one = median_call(100, [&](int) {
    kernels::gemm(kernels::Op::none, kernels::Op::transpose, rows, 4 * channels, channels, x.data(),
                  channels, w.data(), channels, 0, y.data(), 4 * channels);
  });
  return per_step * one;
}

/// Returns how many steps fit into about a third of a second.
int steps_of(StepPeer& peer, bool quick) {
  const double one = peer.measure(1);
  return quick ? 1 : std::max(3, static_cast<int>(0.3 / one));
}

/// Milliseconds of a step on one thread. The floor is the time of its products.
Reading step_alone(bool quick) {
  const char* shape = quick ? kQuickShape : kShape;
  StepPeer peer(shape, 1, 0);
  const double seconds = peer.measure(steps_of(peer, quick));
  const Pinned here(cpu_of(Placement::two_cpus, 0));
  return {.value = seconds * 1e3, .floor = products(shape) * 1e3};
}

/// Measures how much faster `measure` makes steps than one thread alone. The floor is the
/// speed-up of two independent processes, times `share`, the largest part of it that can be
/// reached. `more` is passed to StepPeer.
template <class F>
Reading gain(bool quick, const char* shape, const std::vector<std::string>& more, double share,
             F&& measure) {
  StepPeer one(shape, 1, 0, more), other(shape, 1, 1, more);
  const int steps = steps_of(one, quick);
  std::vector<double> gains, floors, ratios;
  for (int pair = 0; pair < (quick ? 1 : 9); ++pair) {
    const double alone = one.measure(steps);
    one.begin(steps);
    other.begin(steps);
    const double rate = alone / one.end() + alone / other.end();
    gains.push_back(alone / measure(steps));
    floors.push_back(rate * share);
    ratios.push_back(gains.back() / floors.back());
  }
  return {.value = middle(gains), .floor = middle(floors), .ratio = middle(ratios)};
}

Reading threads(bool quick) {
  const char* shape = quick ? kQuickShape : kLargeShape;
  StepPeer two(shape, 2, 0);
  return gain(quick, shape, {}, 1, [&](int steps) { return two.measure(steps); });
}

/// Returns the number of gradient elements of train_step's GPT-2, whose head is its embedding of
/// 256 tokens.
std::int64_t parameters(const char* shape_text) {
  std::int64_t layers = 0, c = 0, context = 0, batch = 0;
  expect(std::sscanf(shape_text, "%" SCNd64 "x%" SCNd64 "x%" SCNd64 "x%" SCNd64, &layers, &c,
                     &context, &batch) == 4,
         "a shape");
  return (256 + context) * c + layers * (12 * c * c + 13 * c) + 2 * c;
}

/// Milliseconds of a step on two ranks. The floor is a step of two independent processes,
/// followed by the sum of their gradients in a plain loop. Both CPUs work in each part.
Reading two_ranks(bool quick) {
  const char* shape = quick ? kQuickShape : kShape;
  StepPeer one(shape, 1, 0), other(shape, 1, 1);
  StepRanks ranks(shape, 2, "dp=2");
  const int steps = steps_of(one, quick);
  std::vector<double> times, floors, ratios;
  for (int pair = 0; pair < (quick ? 1 : 9); ++pair) {
    one.begin(steps);
    other.begin(steps);
    const double alone = std::max(one.end(), other.end());
    floors.push_back((alone + ReductionFloor(parameters(shape)).measure(steps)) * 1e3);
    times.push_back(ranks.measure(steps) * 1e3);
    ratios.push_back(times.back() / floors.back());
  }
  return {.value = middle(times), .floor = middle(floors), .ratio = middle(ratios)};
}

/// Measures the gain of two ranks of a mesh.
Reading divided(bool quick, const char* mesh, int micro, double share) {
  const char* shape = quick ? kQuickShape : kWideShape;
  StepRanks ranks(shape, 2, mesh, micro);
  return gain(quick, shape, {std::to_string(micro)}, share,
              [&](int steps) { return ranks.measure(steps); });
}

Reading tensor_parallel(bool quick) {
  return divided(quick, "tp=2", 1, 1);
}

/// With m micro-batches, each stage is idle for the time of one, so at most m / (m + 1) can be
/// reached.
Reading pipeline(bool quick) {
  return divided(quick, "pp=2", kMicros, static_cast<double>(kMicros) / (kMicros + 1));
}

/// GB of an all_reduce of 16 MiB a second, with the ranks on two nodes.
Reading sum_over_nodes(bool quick) {
  const std::size_t bytes = std::size_t{quick ? 1U : 16U} << 20;
  const int times = quick ? 1 : 7;
  std::vector<double> rates, floors, ratios;
  for (int pair = 0; pair < (quick ? 1 : 9); ++pair) {
    const auto size = static_cast<double>(bytes) / 1e9;
    floors.push_back(size / LinkFloor(bytes, /*adds=*/true).measure(times));
    rates.push_back(size / NodesSum(bytes).measure(times));
    ratios.push_back(rates.back() / floors.back());
  }
  return {.value = middle(rates), .floor = middle(floors), .ratio = middle(ratios)};
}

/// GB/s in each direction of a link, both at once, on loopback.
Reading link_stream(bool quick) {
  const std::size_t bytes = std::size_t{quick ? 1U : 16U} << 20;
  const int times = quick ? 1 : 15;
  std::vector<double> rates, floors, ratios;
  for (int pair = 0; pair < (quick ? 1 : 9); ++pair) {
    const auto size = static_cast<double>(bytes) / 1e9;
    floors.push_back(size / LinkFloor(bytes, /*adds=*/false).measure(times));
    rates.push_back(size / LinkStream(bytes).measure(times));
    ratios.push_back(rates.back() / floors.back());
  }
  return {.value = middle(rates), .floor = middle(floors), .ratio = middle(ratios)};
}

class Train final : public Suite {
 public:
  const char* name() const override { return "train"; }
  std::span<const RowInfo> rows() const override { return rows_; }
  int calm_floor() const override { return 0; }
  Sample measure_floor(int, Placement placement) override {
    const Pinned here(cpu_of(placement, 0));
    return median_of(5, [] { return products(kShape); });
  }
  std::vector<Reading> measure(std::span<const std::size_t> rows, Placement, bool quick) override {
    constexpr std::array measures{step_alone,       threads,     two_ranks,      tensor_parallel,
                                  pipeline,         link_stream, sum_over_nodes, step_over_nodes,
                                  checkpoint_stall, asking,      gang_start,     gang_recovery};
    std::vector<Reading> readings;
    for (const std::size_t row : rows) readings.push_back(measures[row](quick));
    return readings;
  }

 private:
  std::array<RowInfo, 12> rows_{{
      {"train_step_cpu", "ms", kNoFloor, {}, false},
      {"train_threads", "x", kNoFloor, at_least(Goal::Of::ratio, 0.90), false},
      {"train_dp_step", "ms", kNoFloor, at_most(Goal::Of::ratio, 1.05), false},
      {"train_tp_step", "x", kNoFloor, at_least(Goal::Of::ratio, 0.80), false},
      {"train_pp_step", "x", kNoFloor, at_least(Goal::Of::ratio, 0.85), false},
      {"link_stream", "GB/s", kNoFloor, at_least(Goal::Of::ratio, 0.75), false},
      {"allreduce_nodes", "GB/s", kNoFloor, at_least(Goal::Of::ratio, 0.75), false},
      {"train_nodes_step", "ms", kNoFloor, at_most(Goal::Of::ratio, 1.25), false},
      {"checkpoint_stall", "ms", kNoFloor, at_most(Goal::Of::ratio, 1.0), false},
      {"wants_checkpoint", "us", kNoFloor, at_most(Goal::Of::value, 20), false},
      {"gang_start", "ms", kNoFloor, at_most(Goal::Of::value, 400), false},
      {"gang_recovery", "ms", kNoFloor, at_most(Goal::Of::value, 1000), false},
  }};
};

}  // namespace

Suite& train_suite() {
  static Train suite;
  return suite;
}

}  // namespace troupe::bench
