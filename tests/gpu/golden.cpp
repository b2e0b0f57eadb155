// golden: makes the golden run through the Engine on one device, with a process for each rank.
//
//   ranks N golden --data DIR [--device cpu|cuda] [--mesh dp=2,tp=1,pp=1] [--zero 0..3] [--micro M]
//                  [--schedule NAME] [--sequence] [--recompute none|selective|full] [--bf16]
//                  [--offload] [--steps S]
//   golden --threads N ...                   the ranks are threads: --device cpu and stand-in
//   ranks --dies R N golden ... --dies R     rank R kills itself before step 5; the others must end
//                                            in a typed error, within the bound of a step
//
// DIR holds the golden text (tests/golden). Every step's loss and norm must be those of the other
// framework: to 1e-5 relative in f32; in bf16 the loss to 2e-2. Rank 0 prints one JSON object.
// Exit code: 0; 1 with one line that says what is wrong; 2 for wrong usage; 77 without the
// device.
#include "tests/golden/golden_run.hpp"
#include "tests/gpu/mesh.hpp"
#include "tests/gpu/program.hpp"
#include "troupe/train/engine/engine.hpp"

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace {

using namespace troupe;
using gpu::Arguments;
using train::Engine;
using train::Layout;
namespace golden = train::golden;
using Clock = std::chrono::steady_clock;

constexpr const char* kUsageText =
    "usage: ranks N golden --data DIR [--device cpu|cuda] [--mesh dp=,tp=,pp=] [--zero 0..3] "
    "[--micro M] [--schedule NAME] [--sequence] [--recompute none|selective|full] [--bf16] "
    "[--offload] [--steps S] [--threads N] [--dies RANK]";
constexpr std::size_t kLastStep = 4;                  // the death precedes this step
constexpr auto kPatience = std::chrono::seconds(10);  // timeout of an operation
constexpr auto kBound = std::chrono::seconds(20);     // limit of a step that cannot succeed

struct Options {
  Layout layout;
  std::string data, device, described;
  int dies = -1, threads = 0;
  std::size_t steps = golden::kSteps;
};

train::Recompute recompute_named(const std::string& name) {
  if (name == "none") return train::Recompute::none;
  if (name == "selective") return train::Recompute::selective;
  if (name != "full") Arguments::refuse("--recompute is '" + name + "'");
  return train::Recompute::full;
}

Options parse(Arguments& words) {
  Options options;
  Layout& layout = options.layout;
  const std::string mesh = words.text("--mesh", "");
  const collective::MeshShape shape = gpu::mesh_shape(mesh);
  layout = {.dp = shape.dp, .tp = shape.tp, .pp = shape.pp};
  layout.zero = words.number("--zero", 0, 0, 3);
  layout.micro = words.number("--micro", 1, 1, 4);
  layout.schedule = words.text("--schedule", layout.schedule);
  layout.sequence = words.flag("--sequence");
  const std::string recompute = words.text("--recompute", "none");
  layout.recompute = recompute_named(recompute);
  const bool half = words.flag("--bf16");
  if (half) layout.compute = kernels::DType::bf16;
  if (words.flag("--offload")) layout.offload = train::Offload::optimizer;
  options.data = words.text("--data", "");
  options.device = words.text("--device", "cpu");
  options.steps =
      static_cast<std::size_t>(words.number("--steps", golden::kSteps, 1, golden::kSteps));
  options.threads = words.number("--threads", 0, 1, 64);
  options.dies = words.number("--dies", -1, 0, layout.ranks() - 1);
  words.finish();
  if (options.data.empty()) Arguments::refuse("--data is needed");
  if (golden::kRows % (std::int64_t{layout.dp} * layout.micro) != 0)
    Arguments::refuse("the golden run has 4 rows, which dp * micro has to divide");
  options.described = "dp=" + std::to_string(layout.dp) + ",tp=" + std::to_string(layout.tp) +
                      ",pp=" + std::to_string(layout.pp) + " zero=" + std::to_string(layout.zero) +
                      " micro=" + std::to_string(layout.micro) + " recompute=" + recompute +
                      (layout.sequence ? " sequence" : "") + (half ? " bf16" : " f32") +
                      (layout.offload == train::Offload::optimizer ? " offload" : "") +
                      (layout.pp > 1 ? " " + layout.schedule : "");
  return options;
}

/// The largest relative differences between a run and the golden one.
struct Differences {
  double loss = 0, norm = 0;
  void add(std::size_t step, const train::StepResult& result) {
    loss = worse(loss, result.loss / golden::kLosses[step] - 1);
    norm = worse(norm, result.norm / golden::kNorms[step] - 1);
  }
  /// Returns the larger absolute value; NaN is larger than every number.
  static double worse(double a, double b) { return std::abs(b) <= a ? a : std::abs(b); }
};

class Run {
 public:
  Run(const Options& options, kernels::Device device,
      std::unique_ptr<collective::Communicator> host)
      : options_(options),
        text_(options.data),
        device_(std::move(device)),
        mesh_(gpu::join_mesh(options.layout, device_, std::move(host))),
        engine_(golden::model(), options.layout, mesh_, device_, golden::optimizer()) {
    engine_.initialize(1);
    engine_.restore(golden::start(engine_.snapshot()));
  }

  train::StepResult step(std::size_t number) {
    golden::Share share =
        text_.share(number, mesh_.dp_rank, options_.layout.dp, options_.layout.micro);
    return engine_.step(share.micros());
  }

  /// Makes all steps; returns 0 when they are the golden ones.
  int train() {
    const auto begun = Clock::now();
    Differences worst;
    train::StepResult last;
    for (std::size_t i = 0; i < options_.steps; ++i) worst.add(i, last = step(i));
    const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
    const std::uint64_t hash = engine_.weights_hash();
    const bool half = options_.layout.compute != kernels::DType::f32;
    const bool good = half ? worst.loss <= 2e-2 : worst.loss <= 1e-5 && worst.norm <= 1e-5;
    if (mesh_.rank() == 0)
      std::printf(R"({"operation":"golden","layout":"%s","device":"%s","loss":%.9f,"norm":%.9f,)"
                  R"("worst_loss":%.2e,"worst_norm":%.2e,"seconds":%.2f,"hash":"%016llx"})"
                  "\n",
                  options_.described.c_str(), device_.name().c_str(), last.loss, last.norm,
                  worst.loss, worst.norm, seconds, static_cast<unsigned long long>(hash));
    if (!good)
      std::fprintf(stderr, "golden: rank %d: losses differ by up to %.2e, norms by %.2e\n",
                   mesh_.rank(), worst.loss, worst.norm);
    return good ? gpu::kPassed : gpu::kFailed;
  }

  /// Makes the steps before the death, and the step that the death ends.
  int outlive() {
    for (std::size_t i = 0; i < kLastStep; ++i) step(i);
    if (mesh_.rank() == options_.dies) std::raise(SIGKILL);
    const auto begun = Clock::now();
    const Code code = code_of_step();
    const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
    const bool good = is_of_a_lost_rank(code) &&
                      seconds < std::chrono::duration<double>(kBound).count() &&
                      code_of_step() == Code::unavailable;
    std::printf(
        R"({"operation":"golden_death","layout":"%s","rank":%d,"error":"%s","seconds":%.2f})"
        "\n",
        options_.described.c_str(), mesh_.rank(), std::string(name_of(code)).c_str(), seconds);
    return good ? gpu::kPassed : gpu::kFailed;
  }

 private:
  static bool is_of_a_lost_rank(Code code) {
    return code == Code::worker_died || code == Code::timed_out || code == Code::cancelled ||
           code == Code::unavailable;
  }
  /// Returns the code of the error in which a step ends. Throws when the step succeeds.
  Code code_of_step() {
    try {
      step(kLastStep);
    } catch (const Error& error) {
      return error.code();
    }
    throw std::runtime_error("a step ended well without one of its ranks");
  }

  const Options& options_;
  golden::Text text_;
  kernels::Device device_;
  collective::Mesh mesh_;
  Engine engine_;
};

int run(Arguments& words) {
  const Options options = parse(words);
  return gpu::on_ranks(options.threads, kPatience,
                       [&](std::unique_ptr<collective::Communicator> host) {
                         Run run(options, gpu::open_device(options.device), std::move(host));
                         return options.dies < 0 ? run.train() : run.outlive();
                       });
}

}  // namespace

int main(int argc, char** argv) {
  return gpu::run("golden", kUsageText, argc, argv, run);
}
