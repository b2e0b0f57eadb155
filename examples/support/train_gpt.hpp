/// What 08_train_gpt.cpp needs and is not about: its flags and figures.
#pragma once

#include "troupe/train/engine/engine.hpp"
#include "troupe/train/engine/model_plan.hpp"
#include "troupe/train/models/models.hpp"
#include "troupe/train/text.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace train_gpt {

namespace train = troupe::train;
namespace kernels = troupe::kernels;

[[noreturn]] inline void refuse(const std::string& sentence) {
  throw troupe::InvalidArgument(troupe::Code::invalid_argument, sentence);
}

struct Flags {
  std::string text;  ///< empty: the C++ headers of this machine
  long steps = 100, seed = 1, layers = 4, heads = 4, channels = 128, context = 64, batch = 16;
  int dp = 1, zero = 0, micro = 1, threads = 1;
  bool recompute = false, offload = false;

  train::Layout layout() const {
    return {.dp = dp,
            .zero = zero,
            .micro = micro,
            .offload = offload ? train::Offload::optimizer : train::Offload::none,
            .recompute = recompute ? train::Recompute::full : train::Recompute::none};
  }
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

/// "dp=2", and with commas tp=1 and pp=1, which are all that there is of these yet.
inline int dp_of(std::string_view mesh) {
  int dp = 1;
  while (!mesh.empty()) {
    const std::string_view part = mesh.substr(0, mesh.find(','));
    mesh.remove_prefix(std::min(mesh.size(), part.size() + 1));
    const std::string_view axis = part.substr(0, part.find('='));
    if (axis.size() == part.size() || (axis != "dp" && axis != "tp" && axis != "pp"))
      refuse("--mesh takes sizes like dp=2, not \"" + std::string(part) + "\"");
    const long size = number_of("--mesh " + std::string(axis), part.substr(axis.size() + 1), 1);
    if (axis == "dp") dp = static_cast<int>(size);
    if (axis != "dp" && size != 1)
      refuse("--mesh " + std::string(axis) +
             " is not there yet: divide the batch with dp, and leave it 1");
  }
  return dp;
}

inline bool recompute_of(std::string_view value) {
  if (value != "none" && value != "full")
    refuse("--recompute takes none or full, not \"" + std::string(value) + "\"");
  return value == "full";
}

/// Whether the model and the layout are ones; nothing is allocated.
inline void check(const Flags& f) {
  train::check(f.layout(), f.dp);
  if (f.batch < f.dp)
    refuse("--batch " + std::to_string(f.batch) + " is smaller than the " + std::to_string(f.dp) +
           " ranks of --mesh dp=" + std::to_string(f.dp) + ": give every rank at least one sample");
  if (f.threads > 256) refuse("--threads takes 1 to 256, not " + std::to_string(f.threads));
  const train::Model model = f.model();
  static_cast<void>(train::index_of(model, f.layout()));
  static_cast<void>(
      train::activation_bytes(model, f.layout(), {train::DType::i32, {f.batch, f.context}}));
}

/// Throws InvalidArgument, one sentence, for flags that make no run.
inline Flags flags_of(int argc, char** argv) {
  Flags f;
  const std::map<std::string, long*> numbers = {
      {"--steps", &f.steps}, {"--layers", &f.layers},     {"--heads", &f.heads},
      {"--batch", &f.batch}, {"--channels", &f.channels}, {"--context", &f.context}};
  const std::map<std::string, int*> small = {{"--micro", &f.micro}, {"--threads", &f.threads}};
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--offload") {
      f.offload = true;
      continue;
    }
    const bool known = numbers.count(name) != 0 || small.count(name) != 0 || name == "--text" ||
                       name == "--seed" || name == "--mesh" || name == "--zero" ||
                       name == "--recompute";
    if (!known)
      refuse("there is no flag " + name +
             ": --text FILE --steps --seed --layers --heads --channels --context --batch --mesh "
             "dp= --zero --micro --recompute none|full --offload --threads");
    if (++i == argc) refuse(name + " needs a value");
    const std::string_view value = argv[i];
    if (numbers.count(name) != 0) *numbers.at(name) = number_of(name, value, 1);
    if (small.count(name) != 0) *small.at(name) = static_cast<int>(number_of(name, value, 1));
    if (name == "--text") f.text = value;
    if (name == "--seed") f.seed = number_of(name, value, 0);
    if (name == "--zero") f.zero = static_cast<int>(number_of(name, value, 0));
    if (name == "--mesh") f.dp = dp_of(value);
    if (name == "--recompute") f.recompute = recompute_of(value);
  }
  check(f);
  return f;
}

/// The text in windows, those of small texts in small blocks. Throws InvalidArgument when it is too
/// short for one batch.
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

/// The end of a run.
struct Outcome {
  long step = 0;
  double loss = 0, norm = 0;
  std::uint64_t hash = 0;

  void print() const {
    std::printf("{\"step\":%ld,\"loss\":%.9f,\"norm\":%.9f,\"hash\":\"%016llx\"}\n", step, loss,
                norm, static_cast<unsigned long long>(hash));
  }
};

/// Prints a run's figures about ten times.
class Meter {
 public:
  using Clock = std::chrono::steady_clock;

  Meter(const Flags& flags, const train::Engine& engine, kernels::Device& device,
        troupe::collective::Mesh& mesh)
      : flags_(flags),
        flops_(3 * forward_flops(flags, engine)),  // backward is twice forward
        peak_(flags.dp * measured_peak(device, mesh)),
        last_(Clock::now()) {}

  void print(const train::StepResult& result, const train::Engine& engine) {
    ++since_;
    if (result.step % std::max(1L, flags_.steps / 10) != 0 && result.step != flags_.steps) return;
    const double seconds = std::chrono::duration<double>(Clock::now() - last_).count() / since_;
    const train::Engine::Bytes bytes = engine.bytes();
    std::printf("step %lld  loss %.4f  %.0f tokens/s  MFU %.1f%% of %.1f GFLOP/s  %.1f MB a rank\n",
                static_cast<long long>(result.step), result.loss,
                static_cast<double>(flags_.batch * flags_.context) / seconds,
                100 * flops_ / seconds / peak_, peak_ / 1e9,
                static_cast<double>(bytes.store.total() + bytes.activations) / 1e6);
    std::fflush(stdout);
    since_ = 0;
    last_ = Clock::now();
  }

 private:
  static double forward_flops(const Flags& flags, const train::Engine& engine) {
    train::Spec x{train::DType::i32, {flags.batch, flags.context}};
    double flops = 0;
    for (const auto& layer : engine.model()) {
      flops += layer->flops(x);
      x = layer->need(x, engine.layout()).out;
    }
    return flops;
  }

  /// FLOP/s of this rank's products, while the other ranks make theirs.
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
      if (i > 0) continue;  // the first one loads a library
      if (mesh.dp) mesh.dp->barrier();
      start = Clock::now();
    }
    return times * 2.0 * n * n * n / std::chrono::duration<double>(Clock::now() - start).count();
  }

  Flags flags_;
  double flops_, peak_;
  Clock::time_point last_;
  long since_ = 0;
};

}  // namespace train_gpt
