// device_bench: measures GPT-2's operations and training steps on a device.
//
//   device_bench kernels [--device cpu|cuda] [--type f32|bf16] [--size gpt2|tiny]
//                        [--milliseconds M] [--list]
//   device_bench step    [--device cpu|cuda] [--type f32|bf16] [--size gpt2|tiny] [--batch B]
//                        [--recompute]
//
// kernels: prints the ceilings of this device (a copy; products by the vendor's library), then
// each operation beside its ceiling. All are measured in the same call and printed as one JSON
// object a line. Bars: a product without bias and activation reaches 97% of the vendor's best; an
// operation that moves memory reaches 80% of a copy of as many bytes. Each is measured for M
// (100) milliseconds. The tiny size has no bars. --list prints the names of all cases, and fails
// when an operation has no case.
//
// step: prints the device, then reads numbers of steps, one a line. For each it makes so many
// steps and prints their median time in milliseconds. The batch is 8 rows of 1,024 tokens, or B.
//
// Exit code: 0; 1 with one line when something failed; 2 for wrong usage; 3 when a bar was
// missed; 77 without the device.
#include "tests/gpu/bench/cases.hpp"
#include "tests/gpu/bench/raw_products.hpp"
#include "tests/gpu/program.hpp"
#include "troupe/kernels/device/table.hpp"
#include "troupe/kernels/philox/philox.hpp"
#include "troupe/train/engine/engine.hpp"
#include "troupe/train/models/models.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace troupe;
using gpu::Arguments;
using gpu::Case;
using gpu::NamedCase;
using gpu::Sizes;
using kernels::DType;

constexpr const char* kUsageText =
    "usage: device_bench kernels|step [--device cpu|cuda] [--type f32|bf16] [--size gpt2|tiny] "
    "[--milliseconds M] [--list] [--batch B] [--recompute]";
constexpr int kMissed = 3;
constexpr double kProductBar = 0.97, kCopyBar = 0.80;

struct Options {
  std::string device;
  DType type = DType::f32;
  Sizes sizes;
  bool is_tiny = false;
};

Options parse(Arguments& words) {
  Options options;
  options.device = words.text("--device", "cpu");
  const std::string type = words.text("--type", "f32"), size = words.text("--size", "gpt2");
  if (type != "f32" && type != "bf16") Arguments::refuse("--type is '" + type + "'");
  if (size != "gpt2" && size != "tiny") Arguments::refuse("--size is '" + size + "'");
  options.type = type == "f32" ? DType::f32 : DType::bf16;
  options.is_tiny = size == "tiny";
  options.sizes = options.is_tiny ? gpu::kTiny : gpu::kGpt2;
  return options;
}

/// Prints rows, and remembers whether a bar was missed.
class Table {
 public:
  Table(const Options& options, kernels::Device& device, double seconds)
      : options_(options), device_(device), raw_(gpu::raw_products(device)) {
    budget_ = options.is_tiny ? 0 : seconds;
  }

  void ceilings() {
    const double bytes = options_.is_tiny ? 1 << 20 : 2.0 * (1 << 30);
    const double copy = gpu::copy_rate(device_, bytes, budget_);
    std::printf(R"({"operation":"ceiling","of":"copy","device":"%s","bytes":%.0f,"gb_per_s":%.1f})"
                "\n",
                device_.name().c_str(), bytes, copy * 1e-9);
    const std::int64_t n = options_.is_tiny ? 64 : 8192;
    product_ = product_ceiling(n, false);
    if (options_.type == DType::f32 && !device_.is_cpu()) product_ceiling(n, true);
  }

  void row(const NamedCase& named) {
    try {
      gpu::Room room(device_, options_.type);
      const Case one = named.make(room);
      const double seconds = gpu::seconds_of(device_, one.call, budget_);
      one.flops > 0 ? computed(named.name, one, seconds) : moved(named.name, one, seconds);
    } catch (const std::exception& error) {
      std::printf(R"({"operation":"kernel","name":"%s","type":"%s","error":"%s"})"
                  "\n",
                  named.name.c_str(), type_name(), plain(error.what()).c_str());
      failed_ = true;
    }
    std::fflush(stdout);
  }

  int code() const { return failed_ ? gpu::kFailed : missed_ ? kMissed : gpu::kPassed; }

 private:
  const char* type_name() const { return name_of(options_.type).data(); }
  static std::string plain(std::string text) {
    std::erase_if(text, [](char c) { return c == '"' || c == '\\' || c < ' '; });
    return text;
  }

  /// Returns the operations a second of a square product.
  double product_ceiling(std::int64_t n, bool tf32) {
    gpu::Room room(device_, options_.type);
    const kernels::Gemm o{.type = options_.type,
                          .c_type = options_.type,
                          .m = n,
                          .n = n,
                          .k = n,
                          .a = room.random(n * n),
                          .lda = n,
                          .b = room.random(n * n),
                          .ldb = n,
                          .c = room.zeros(n * n, options_.type),
                          .ldc = n};
    const double flops =
        2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
    const double rate = flops / raw_->seconds(o, tf32, budget_);
    std::printf(R"({"operation":"ceiling","of":"product","library":"%s","type":"%s","n":%lld,)"
                R"("tflops":%.3f})"
                "\n",
                raw_->name().c_str(), tf32 ? "tf32" : type_name(), static_cast<long long>(n),
                rate * 1e-12);
    return rate;
  }

  /// The ceiling of a product is the vendor's product of the same shape; that of attention is the
  /// square product.
  void computed(const std::string& name, const Case& one, double seconds) {
    const double ceiling =
        one.product ? raw_->seconds(*one.product, false, budget_) : one.flops / product_;
    judge(name, seconds, ceiling, one.product ? "product" : "square product",
          one.product && one.is_judged ? kProductBar : 0);
  }
  void moved(const std::string& name, const Case& one, double seconds) {
    judge(name, seconds, one.bytes / gpu::copy_rate(device_, one.bytes, budget_), "copy", kCopyBar);
  }
  void judge(const std::string& name, double seconds, double ceiling, const char* of, double bar) {
    const double share = ceiling / seconds;
    const bool is_judged = bar > 0 && !options_.is_tiny, reached = share >= bar;
    std::printf(R"({"operation":"kernel","name":"%s","type":"%s","ms":%.4f,"ceiling":"%s",)"
                R"("ceiling_ms":%.4f,"share":%.3f,"bar":%.2f,"reached":%s})"
                "\n",
                name.c_str(), type_name(), seconds * 1e3, of, ceiling * 1e3, share, bar,
                !is_judged ? "null"
                : reached  ? "true"
                           : "false");
    if (is_judged && !reached) missed_ = true;
  }

  const Options& options_;
  kernels::Device& device_;
  std::unique_ptr<gpu::RawProducts> raw_;
  double budget_ = 0, product_ = 0;
  bool failed_ = false, missed_ = false;
};

/// Returns the names of a device's operations for which there is no case.
std::set<std::string> operations_without_case(kernels::Device& device) {
  std::set<std::string> missing;
#define TROUPE_CUDA_ENTRY(name, Type) missing.insert(#name);
  TROUPE_CUDA_OPERATIONS(TROUPE_CUDA_ENTRY)
#undef TROUPE_CUDA_ENTRY
  for (const DType type : {DType::f32, DType::bf16})
    for (const NamedCase& one : gpu::cases(device, gpu::kTiny, type))
      missing.erase(one.name.substr(0, one.name.find('.')));
  return missing;
}

int list(kernels::Device& device, const Options& options) {
  for (const NamedCase& one : gpu::cases(device, options.sizes, options.type))
    std::printf("%s\n", one.name.c_str());
  for (const std::string& name : operations_without_case(device))
    std::fprintf(stderr, "device_bench: no case measures %s\n", name.c_str());
  return operations_without_case(device).empty() ? gpu::kPassed : gpu::kFailed;
}

int measure_kernels(Arguments& words) {
  const Options options = parse(words);
  const double seconds = words.number("--milliseconds", 100, 1, 10000) * 1e-3;
  const bool only_names = words.flag("--list");
  words.finish();
  kernels::Device device = gpu::open_device(options.device);
  if (only_names) return list(device, options);
  Table table(options, device, seconds);
  table.ceilings();
  for (const NamedCase& one : gpu::cases(device, options.sizes, options.type)) table.row(one);
  return table.code();
}

/// A GPT-2 on one rank that trains on made-up tokens.
class Steps {
 public:
  Steps(const Sizes& sizes, kernels::Device& device, const train::Layout& layout, bool is_tiny)
      : shape_{sizes.batch, sizes.time},
        tokens_(static_cast<std::size_t>(sizes.rows() + 1)),
        engine_(model_of(sizes, is_tiny), layout, mesh_, device, {.rate = 1e-4f}) {
    for (std::size_t i = 0; i < tokens_.size(); ++i)
      tokens_[i] = static_cast<std::int32_t>(kernels::philox_bits(1, 2, i) %
                                             static_cast<std::uint64_t>(sizes.vocabulary));
    engine_.initialize(1);
  }
  /// Returns the median milliseconds of a step. A step ends when the host has its loss.
  double milliseconds(int steps) {
    std::vector<double> times;
    for (int i = 0; i < steps; ++i) times.push_back(milliseconds_of_one());
    std::nth_element(times.begin(), times.begin() + steps / 2, times.end());
    return times[static_cast<std::size_t>(steps / 2)];
  }

 private:
  static train::Model model_of(const Sizes& sizes, bool is_tiny) {
    if (!is_tiny) return train::models::gpt2(train::models::gpt2_preset("gpt2"));
    return train::models::gpt2({.vocabulary = sizes.vocabulary,
                                .context = sizes.time,
                                .layers = 2,
                                .heads = sizes.heads,
                                .channels = sizes.channels});
  }
  double milliseconds_of_one() {
    const auto begun = std::chrono::steady_clock::now();
    const train::MicroBatch batch{.input = {tokens_.data(), DType::i32, shape_},
                                  .targets = {tokens_.data() + 1, DType::i32, shape_}};
    engine_.step({&batch, 1});
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begun)
        .count();
  }

  train::Shape shape_;
  std::vector<std::int32_t> tokens_;
  collective::Mesh mesh_;
  train::Engine engine_;
};

int measure_steps(Arguments& words) {
  Options options = parse(words);
  options.sizes.batch = words.number("--batch", static_cast<int>(options.sizes.batch), 1, 1024);
  train::Layout layout{.compute = options.type};
  if (words.flag("--recompute")) layout.recompute = train::Recompute::full;
  words.finish();
  kernels::Device device = gpu::open_device(options.device);
  Steps steps(options.sizes, device, layout, options.is_tiny);
  steps.milliseconds(3);
  std::cout << device.name() << std::endl;
  for (int count = 0; std::cin >> count;)
    std::cout << steps.milliseconds(std::clamp(count, 1, 100'000)) << std::endl;
  return gpu::kPassed;
}

int run(Arguments& words) {
  const std::string part = words.word();
  if (part == "kernels") return measure_kernels(words);
  if (part == "step") return measure_steps(words);
  Arguments::refuse("the first word is kernels or step, not '" + part + "'");
}

}  // namespace

int main(int argc, char** argv) {
  return gpu::run("device_bench", kUsageText, argc, argv, run);
}
