/// Helpers of 08_train_gpt.cpp: its flags, and the figures that it prints.
#pragma once

#include "troupe/train/engine/engine.hpp"
#include "troupe/train/engine/model_plan.hpp"
#include "troupe/train/fit.hpp"
#include "troupe/train/models/models.hpp"
#include "troupe/train/text.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace train_gpt {

namespace train = troupe::train;
namespace kernels = troupe::kernels;

[[noreturn]] inline void refuse(const std::string& sentence) {
  throw troupe::InvalidArgument(troupe::Code::invalid_argument, sentence);
}

struct Flags {
  std::string text;  ///< a file; empty: the C++ headers of this machine
  long steps = 100, seed = 1, layers = 4, heads = 4, channels = 128, context = 64, batch = 16;
  int threads = 1;
  std::string folder;  ///< of checkpoints; empty: none are made
  long every = 10;     ///< steps between two checkpoints
  int keep = 2, restarts = 0;
  bool spread = false;      ///< over all nodes
  int least = 0, most = 0;  ///< ranks, of one CPU each; 0: as the mesh says
  train::Layout layout;

  train::Model model() const {  // tokens are bytes
    return train::models::gpt2({.vocabulary = 256,
                                .context = context,
                                .layers = layers,
                                .heads = heads,
                                .channels = channels});
  }
};

inline long number_of(const std::string& name, std::string_view value, long least) {
  long number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < least ||
      number > 1'000'000'000)
    refuse(name + " takes a whole number of at least " + std::to_string(least) + ", not \"" +
           std::string(value) + "\"");
  return number;
}

/// Reads a number, or two with a colon between them.
inline std::pair<int, int> range_of(const std::string& name, std::string_view value) {
  const auto colon = value.find(':');
  const auto least = static_cast<int>(number_of(name, value.substr(0, colon), 1));
  if (colon == std::string_view::npos) return {least, least};
  return {least, static_cast<int>(number_of(name, value.substr(colon + 1), 1))};
}

inline train::Recompute recompute_of(std::string_view value) {
  if (value == "none") return train::Recompute::none;
  if (value == "selective") return train::Recompute::selective;
  if (value == "full") return train::Recompute::full;
  refuse("--recompute takes none, selective or full, not \"" + std::string(value) + "\"");
}

/// Throws InvalidArgument unless the flags make a valid model and layout. It allocates no memory
/// for them.
inline void check(const Flags& f) {
  const train::Layout& layout = f.layout;
  train::check(layout, layout.ranks());
  if (f.batch < layout.dp)
    refuse("--batch " + std::to_string(f.batch) + " is smaller than dp=" +
           std::to_string(layout.dp) + " of --mesh: give every rank at least one sample");
  if (f.threads > 256) refuse("--threads takes 1 to 256, not " + std::to_string(f.threads));
  const train::Model model = f.model();
  static_cast<void>(train::index_of(model, layout));
  static_cast<void>(
      train::activation_bytes(model, layout, {train::DType::i32, {f.batch, f.context}}));
}

/// Reads the flags. Throws InvalidArgument with one sentence for flags that are invalid.
inline Flags flags_of(int argc, char** argv) {
  Flags f;
  const std::map<std::string, long*> numbers = {
      {"--steps", &f.steps}, {"--layers", &f.layers},     {"--heads", &f.heads},
      {"--batch", &f.batch}, {"--channels", &f.channels}, {"--context", &f.context},
      {"--every", &f.every}};
  const std::map<std::string, int*> small = {
      {"--micro", &f.layout.micro}, {"--threads", &f.threads}, {"--keep", &f.keep}};
  const std::map<std::string, std::function<void()>> switches = {
      {"--offload", [&] { f.layout.offload = train::Offload::optimizer; }},
      {"--sequence", [&] { f.layout.sequence = true; }},
      {"--bf16", [&] { f.layout.compute = train::DType::bf16; }},
      {"--spread", [&] { f.spread = true; }}};
  const std::map<std::string, std::function<void(std::string_view)>> others = {
      {"--text", [&](std::string_view value) { f.text = value; }},
      {"--seed", [&](std::string_view value) { f.seed = number_of("--seed", value, 0); }},
      {"--folder", [&](std::string_view value) { f.folder = std::filesystem::absolute(value); }},
      {"--restarts",
       [&](std::string_view value) {
         f.restarts = static_cast<int>(number_of("--restarts", value, 0));
       }},
      {"--workers",
       [&](std::string_view value) { std::tie(f.least, f.most) = range_of("--workers", value); }},
      {"--zero",
       [&](std::string_view value) {
         f.layout.zero = static_cast<int>(number_of("--zero", value, 0));
       }},
      {"--mesh", [&](std::string_view value) { train::set_mesh(f.layout, value); }},
      {"--schedule", [&](std::string_view value) { f.layout.schedule = value; }},
      {"--recompute", [&](std::string_view value) { f.layout.recompute = recompute_of(value); }}};
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (const auto it = switches.find(name); it != switches.end()) {
      it->second();
      continue;
    }
    if (numbers.count(name) + small.count(name) + others.count(name) == 0)
      refuse("there is no flag " + name +
             ": --text FILE --steps --seed --layers --heads --channels --context --batch --mesh "
             "dp=,tp=,pp= --zero --micro --schedule gpipe|1f1b|interleaved|FILE --sequence "
             "--recompute none|selective|full --bf16 --offload --threads --folder --every --keep "
             "--restarts --spread --workers MIN:MAX");
    if (++i == argc) refuse(name + " needs a value");
    const std::string_view value = argv[i];
    if (const auto it = numbers.find(name); it != numbers.end())
      *it->second = number_of(name, value, 1);
    else if (const auto it = small.find(name); it != small.end())
      *it->second = static_cast<int>(number_of(name, value, 1));
    else
      others.at(name)(value);
  }
  check(f);
  return f;
}

/// Reads the text and divides it into windows; a small text gets smaller blocks. Throws
/// InvalidArgument when it is too short for one batch.
inline train::TextDataset text_of(const Flags& f) {
  std::string text =
      f.text.empty() ? train::read_standard_headers(8 << 20) : train::read_text(f.text, 64 << 20);
  const std::int64_t block =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(text.size()) / 32, f.context + 1, 16384);
  train::TextDataset data(std::move(text), {.context = f.context, .block = block});
  if (data.size() < static_cast<std::uint64_t>(f.batch))
    refuse("the text has " + std::to_string(data.size()) + " windows of " +
           std::to_string(f.context) + " bytes, fewer than --batch " + std::to_string(f.batch) +
           ": give a longer text or a smaller batch");
  return data;
}

/// The result of a run.
struct Outcome {
  long step = 0;
  double loss = 0, norm = 0;
  std::uint64_t hash = 0;
  int ranks = 1, nodes = 1, restarts = 0, moves = 0;
  long resumed = 0;  ///< the step from which the run went on; 0: it began at step 1

  void print() const {
    std::printf(
        "{\"step\":%ld,\"loss\":%.9f,\"norm\":%.9f,\"hash\":\"%016llx\",\"ranks\":%d,\"nodes\":%d,"
        "\"restarts\":%d,\"moves\":%d,\"resumed\":%ld}\n",
        step, loss, norm, static_cast<unsigned long long>(hash), ranks, nodes, restarts, moves,
        resumed);
  }
};

/// Prints where each rank of a gang runs, on stderr. Returns the number of nodes.
inline int show(const train::Gang& gang) {
  std::set<std::string> nodes;
  for (const train::Gang::Rank& rank : gang.ranks) {
    nodes.insert(rank.node);
    std::fprintf(stderr, "rank %d of %zu: %s, process %d, from step %ld\n", rank.rank,
                 gang.ranks.size(), rank.node.c_str(), rank.pid, gang.step);
  }
  return static_cast<int>(nodes.size());
}

/// The rate of this machine's products, of which a run is said to use a share. Another load may
/// slow the products that are measured, so a run that is faster raises the peak.
class Peak {
 public:
  explicit Peak(double measured) : flops_(measured) {}
  /// Returns the share of the peak that this rate is, from 0 to 1.
  double share_of(double flops) {
    flops_ = std::max(flops_, flops);
    return flops / flops_;
  }
  double flops() const { return flops_; }

 private:
  double flops_;
};

/// Prints a run's figures about ten times during the run.
class Meter {
 public:
  using Clock = std::chrono::steady_clock;

  Meter(const Flags& flags, kernels::Device& device, troupe::collective::Mesh& mesh)
      : flags_(flags),
        flops_(3 * forward_flops(flags)),  // backward is twice forward
        peak_((mesh.world ? mesh.world->size() : 1) * measured_peak(device, mesh)),
        last_(Clock::now()) {}

  void print(const train::StepResult& result, const train::Engine& engine) {
    ++since_;
    if (result.step % std::max(1L, flags_.steps / 10) != 0 && result.step != flags_.steps) return;
    const double seconds = std::chrono::duration<double>(Clock::now() - last_).count() / since_;
    const train::Engine::Bytes bytes = engine.bytes();
    const double share = peak_.share_of(flops_ / seconds);
    std::printf("step %lld  loss %.4f  %.0f tokens/s  MFU %.1f%% of %.1f GFLOP/s  %.1f MB a rank\n",
                static_cast<long long>(result.step), result.loss,
                static_cast<double>(flags_.batch * flags_.context) / seconds, 100 * share,
                peak_.flops() / 1e9,
                static_cast<double>(bytes.store.total() + bytes.activations) / 1e6);
    std::fflush(stdout);
    since_ = 0;
    last_ = Clock::now();
  }

 private:
  /// Counts the floating-point operations of the model's forward pass on the whole batch.
  static double forward_flops(const Flags& flags) {
    const train::Model model = flags.model();
    static_cast<void>(train::index_of(model, {}));
    train::Spec x{train::DType::i32, {flags.batch, flags.context}};
    double flops = 0;
    for (const auto& layer : model) {
      flops += layer->flops(x);
      x = layer->need(x, {}).out;
    }
    return flops;
  }

  /// Measures the FLOP/s of this rank's products while the other ranks do the same.
  static double measured_peak(kernels::Device& device, troupe::collective::Mesh& mesh) {
    constexpr std::int64_t n = 512, times = 10;
    const kernels::Memory memory = device.allocate(3 * n * n * sizeof(float));
    auto* a = static_cast<float*>(memory.data());
    auto start = Clock::now();
    for (int i = 0; i <= times; ++i) {
      device.kernels().gemm(device.compute(), {.m = n,
                                               .n = n,
                                               .k = n,
                                               .a = a,
                                               .lda = n,
                                               .b = a + n * n,
                                               .ldb = n,
                                               .c = a + 2 * n * n,
                                               .ldc = n});
      device.compute().synchronize();
      if (i > 0) continue;  // the first product loads a library and is not measured
      if (mesh.world) mesh.world->barrier();
      start = Clock::now();
    }
    return times * 2.0 * n * n * n / std::chrono::duration<double>(Clock::now() - start).count();
  }

  Flags flags_;
  double flops_;
  Peak peak_;
  Clock::time_point last_;
  long since_ = 0;
};

}  // namespace train_gpt
