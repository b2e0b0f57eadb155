#include "troupe/train/engine/check_layouts.hpp"

#include "troupe/actors/collective/local/local.hpp"
#include "troupe/kernels/cross_entropy/cross_entropy.hpp"
#include "troupe/kernels/philox/philox.hpp"
#include "troupe/train/engine/engine.hpp"
#include "troupe/train/engine/model_plan.hpp"
#include "troupe/train/internal/reject.hpp"
#include "troupe/train/params/plan.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>
#include <thread>

namespace troupe::train {
namespace {

using internal::reject;
using internal::require;

/// Random inputs or targets for all samples of a step.
struct Values {
  Spec spec;
  std::vector<std::byte> memory;

  /// Returns the samples [first, end). Borrows the memory.
  TensorView rows(std::int64_t first, std::int64_t end) {
    Spec part = spec;
    part.shape.set(0, end - first);
    return {memory.data() + first * (spec.bytes() / spec.shape[0]), part};
  }
};

Values random_values(const Spec& spec, std::int64_t ids, std::uint64_t seed, std::uint64_t stream) {
  require(spec.type == DType::i32 || spec.type == DType::f32,
          "check_layouts makes i32 and f32 values only");
  Values values{spec, std::vector<std::byte>(static_cast<std::size_t>(spec.bytes()))};
  if (spec.type == DType::f32) {
    kernels::philox_normal(reinterpret_cast<float*>(values.memory.data()), spec.count(), seed,
                           stream, 0, 0.0f, 1.0f);
    return values;
  }
  for (std::int64_t i = 0; i < spec.count(); ++i) {
    const auto id = static_cast<std::int32_t>(
        kernels::philox_bits(seed, stream, static_cast<std::uint64_t>(i)) %
        static_cast<std::uint64_t>(ids));
    std::memcpy(values.memory.data() + i * kernels::size_of(DType::i32), &id, sizeof id);
  }
  return values;
}

/// The model and the data of every run.
struct Task {
  const std::function<Model()>& model;
  const LayoutCheckOptions& options;
  Values input, targets;
};

/// Returns the spec of the targets. Without a shape in the options it is the shape of the model's
/// losses.
Spec target_spec(const std::function<Model()>& model, const LayoutCheckOptions& options) {
  Spec targets = options.targets;
  if (targets.shape.rank() > 0) return targets;
  const Model layers = model();
  index_of(layers, {});
  Spec x = options.input;
  for (const std::unique_ptr<Layer>& layer : layers) x = layer->need(x, {}).out;
  targets.shape = x.shape;
  return targets;
}

Task task_of(const std::function<Model()>& model, const LayoutCheckOptions& options) {
  require(options.steps >= 1, "LayoutCheckOptions.steps must be at least 1");
  require(options.input.shape.rank() > 0 && options.input.count() > 0,
          "LayoutCheckOptions.input needs samples: its first dimension");
  const Spec targets = target_spec(model, options);
  require(targets.shape[0] == options.input.shape[0],
          "LayoutCheckOptions.targets needs as many samples as the input");
  Task task{model, options, random_values(options.input, options.ids, options.seed, 1),
            random_values(targets, options.classes, options.seed, 2)};
  if (targets.type == DType::i32 && targets.count() > 1)
    std::memcpy(task.targets.memory.data(), &kernels::kIgnore, sizeof kernels::kIgnore);
  return task;
}

/// The result of one layout, on rank 0.
struct Trace {
  std::vector<double> losses, norms;
  Snapshot start, end;          // weights before the first step and after it
  std::string refused, failed;  ///< why; empty when it was not refused, or did not fail
};

std::vector<MicroBatch> micros_of(Task& task, const Layout& layout, int dp_rank) {
  const std::int64_t batch = task.input.spec.shape[0],
                     size = batch / (static_cast<std::int64_t>(layout.dp) * layout.micro);
  std::vector<MicroBatch> micros;
  for (int i = 0; i < layout.micro; ++i) {
    const std::int64_t first = (std::int64_t{dp_rank} * layout.micro + i) * size;
    micros.push_back({.input = task.input.rows(first, first + size),
                      .targets = task.targets.rows(first, first + size)});
  }
  return micros;
}

void train_rank(Task& task, const Layout& layout, collective::Mesh& mesh, Trace& trace) {
  kernels::Device device = kernels::cpu_device();
  const std::vector<MicroBatch> micros = micros_of(task, layout, mesh.dp_rank);
  std::optional<Engine> engine;
  try {
    engine.emplace(task.model(), layout, mesh, device, task.options.optimizer);
    activation_bytes(engine->model(), layout, micros.front().input.spec());
  } catch (const InvalidArgument& refusal) {  // the same on every rank
    trace.refused = refusal.message();
    return;
  }
  engine->initialize(task.options.seed);
  trace.start = engine->snapshot();
  for (int step = 0; step < task.options.steps; ++step) {
    const StepResult result = engine->step(micros);
    trace.losses.push_back(result.loss);
    trace.norms.push_back(result.norm);
    if (step == 0) trace.end = engine->snapshot();
  }
  engine->weights_hash();  // throws when a replicated tensor differs between ranks
}

/// A rank's exception. `is_echo`: it only reports that another rank ended, and is shown if there
/// is no other.
struct Failure {
  std::string message;
  bool is_echo = true;
};

Failure failure_of(const std::function<void()>& body) {
  try {
    body();
    return {};
  } catch (const Error& error) {
    return {error.message(), error.code() == Code::cancelled};
  } catch (const std::exception& error) {
    return {error.what(), false};
  }
}

Trace run_layout(Task& task, const Layout& layout) {
  const int ranks = layout.ranks();
  std::vector<Trace> traces(static_cast<std::size_t>(ranks));
  std::vector<Failure> failures(static_cast<std::size_t>(ranks));
  auto group = collective::local_group(ranks);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < traces.size(); ++rank)
    threads.emplace_back([&, rank] {
      failures[rank] = failure_of([&] {
        collective::Mesh mesh =
            collective::make_mesh(ranks == 1 ? nullptr : std::move(group[rank]),
                                  {.dp = layout.dp, .tp = layout.tp, .pp = layout.pp});
        train_rank(task, layout, mesh, traces[rank]);
      });
    });
  for (std::thread& thread : threads) thread.join();
  Trace trace = std::move(traces.front());
  for (const bool echo : {false, true})
    for (const Failure& failure : failures)
      if (trace.failed.empty() && failure.is_echo == echo) trace.failed = failure.message;
  return trace;
}

double relative(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]) / std::max(std::abs(b[i]), 1e-30);
    if (!(difference <= worst)) worst = difference;  // true for a NaN, too
  }
  return worst;
}

std::vector<float> floats(const NamedTensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

/// Euclidean norms of vectors that belong to one tensor.
struct Lengths {
  double difference = 0, motion = 0, size = 0;
};

Lengths lengths_of(const NamedTensor& start, const NamedTensor& plain, const NamedTensor& other) {
  const std::vector<float> from = floats(start), to = floats(plain), there = floats(other);
  Lengths sums;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const double w = to[i], d = there[i] - w, m = w - from[i];
    sums.difference += d * d;
    sums.motion += m * m;
    sums.size += w * w;
  }
  return {std::sqrt(sums.difference), std::sqrt(sums.motion), std::sqrt(sums.size)};
}

/// Returns each tensor's difference, less the rounding of the update, relative to how far the
/// tensor moved. A tensor that hardly moves (its gradient is mere rounding) is compared with the
/// motion of all tensors.
std::vector<LayoutDifference::Tensor> differences(const Trace& plain, const Trace& other) {
  std::vector<Lengths> all;
  double moved = 0;
  for (std::size_t t = 0; t < plain.end.tensors.size(); ++t) {
    all.push_back(lengths_of(plain.start.tensors[t], plain.end.tensors[t], other.end.tensors[t]));
    moved += all.back().motion * all.back().motion;
  }
  const double floor = std::max(1e-3 * std::sqrt(moved), 1e-30);
  const double rounding = std::ldexp(1.0, -23);
  std::vector<LayoutDifference::Tensor> tensors;
  for (std::size_t t = 0; t < all.size(); ++t) {
    const double beyond = all[t].difference - rounding * all[t].size;
    tensors.push_back(
        {plain.end.tensors[t].name, beyond <= 0 ? 0 : beyond / std::max(all[t].motion, floor)});
    if (std::isnan(all[t].difference)) tensors.back().relative = all[t].difference;
  }
  return tensors;
}

/// Returns the name of the first tensor whose bytes differ between two snapshots; empty: none.
std::string other_bytes(const Snapshot& a, const Snapshot& b) {
  for (std::size_t t = 0; t < std::min(a.tensors.size(), b.tensors.size()); ++t)
    if (a.tensors[t].bytes != b.tensors[t].bytes) return a.tensors[t].name;
  return {};
}

std::string text_of(double value) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.3g", value);
  return digits;
}

std::string name_of(const Layout& layout) {
  return layout_text(layout) + (layout.sequence ? " with sequence" : "");
}

std::string differs(const std::string& what, double by, double tolerance) {
  return what + " differs from one rank's by " + text_of(by) + " (tolerance " + text_of(tolerance) +
         ")";
}

/// Returns what is wrong with the first forward passes; empty: nothing.
std::string forward_verdict(double first_loss, double tolerance) {
  if (first_loss <= tolerance) return {};
  return differs("the loss of the first step", first_loss, tolerance) +
         ": a forward pass leaves out a sum over Run::tp, or sums what every rank has whole";
}

/// Returns what is wrong with a layout that ran; empty: nothing.
std::string verdict(const LayoutDifference& found, double tolerance) {
  if (std::string why = forward_verdict(found.first_loss, tolerance); !why.empty()) return why;
  const LayoutDifference::Tensor worst = found.worst();
  if (!(worst.relative <= tolerance))
    return differs("the gradient of " + worst.name, worst.relative, tolerance) +
           ": a backward pass leaves out a sum over Run::tp, sums twice, or the tensor's shard is "
           "not what the layer computes with (TensorShard::partial?)";
  if (!(found.norm <= tolerance))
    return differs("the norm of the gradient", found.norm, tolerance) +
           ": a tensor counts more than once or not at all; see its TensorShard";
  if (!(found.loss <= tolerance))
    return differs("the loss of a later step", found.loss, tolerance) +
           ": look for what depends on the step, such as dropout, and for rounding that grows";
  return {};
}

double first_loss_of(const Trace& plain, const Trace& other) {
  return other.losses.empty() ? 0 : relative({other.losses.front()}, {plain.losses.front()});
}

/// Throws the reason why a layout cannot be compared, the earliest cause first.
void require_comparable(const Trace& plain, const Trace& other, double tolerance) {
  const std::string name = other_bytes(plain.start, other.start);
  if (!name.empty())
    reject("the initial weights of " + name +
           " are not those of one rank: initialize() must give an element of the whole tensor one "
           "value in every layout, as fill_normal() does");
  if (other.failed.empty()) return;
  const std::string forward = forward_verdict(first_loss_of(plain, other), tolerance);
  reject(forward.empty() ? "a rank failed: " + other.failed : forward);
}

LayoutDifference compare(const Layout& layout, const Trace& plain, const Trace& other) {
  return {.layout = layout,
          .refused = {},
          .first_loss = first_loss_of(plain, other),
          .loss = relative(other.losses, plain.losses),
          .norm = relative(other.norms, plain.norms),
          .weights = differences(plain, other)};
}

/// Runs the layout and compares it. Throws InvalidArgument with the layout's name for every
/// failure.
LayoutDifference check_layout(Task& task, const Trace& plain, const Layout& layout) {
  const Trace other = run_layout(task, layout);
  if (!other.refused.empty()) return {.layout = layout, .refused = other.refused, .weights = {}};
  const double tolerance = task.options.tolerance;
  try {
    require_comparable(plain, other, tolerance);
    LayoutDifference found = compare(layout, plain, other);
    if (const std::string wrong = verdict(found, tolerance); !wrong.empty()) reject(wrong);
    return found;
  } catch (const InvalidArgument& wrong) {
    reject(name_of(layout) + ": " + wrong.message());
  }
}

std::vector<Layout> layouts_of(const LayoutCheckOptions& options) {
  if (!options.layouts.empty()) return options.layouts;
  std::vector<Layout> all;
  for (const int ranks : options.ranks)
    for (const Layout& layout : all_layouts(ranks)) all.push_back(layout);
  return all;
}

/// Returns why the samples of a step do not divide evenly; empty: they do. With an uneven
/// division a difference would not be the layout's fault.
std::string uneven(const Layout& layout, std::int64_t batch) {
  const std::int64_t parts = static_cast<std::int64_t>(layout.dp) * layout.micro;
  if (batch % parts == 0) return {};
  return "the " + std::to_string(batch) +
         " samples do not divide by dp * micro = " + std::to_string(parts) +
         ": give LayoutCheckOptions.input a multiple of that";
}

/// Calls f with every mesh of the ranks: all divisors for pp and tp, and the rest for dp.
template <class F>
void for_each_mesh(int ranks, F&& f) {
  for (int pp = 1; pp <= ranks; ++pp)
    for (int tp = 1; ranks % pp == 0 && tp <= ranks / pp; ++tp)
      if (ranks / pp % tp == 0) f(Layout{.dp = ranks / pp / tp, .tp = tp, .pp = pp});
}

}  // namespace

LayoutDifference::Tensor LayoutDifference::worst() const {
  Tensor worst;
  for (const Tensor& tensor : weights)
    if (!(tensor.relative <= worst.relative)) worst = tensor;
  return worst;
}

std::string LayoutReport::text() const {
  std::string lines;
  for (const LayoutDifference& each : layouts) {
    lines += name_of(each.layout) + ": ";
    if (!each.refused.empty()) {
      lines += "refused: " + each.refused + "\n";
      continue;
    }
    const LayoutDifference::Tensor worst = each.worst();
    lines += "loss " + text_of(each.loss) + ", norm " + text_of(each.norm) + ", weights " +
             text_of(worst.relative) + (worst.name.empty() ? "" : " (" + worst.name + ")") + "\n";
  }
  return lines;
}

std::vector<Layout> all_layouts(int ranks) {
  require(ranks >= 1, "all_layouts needs at least one rank");
  std::vector<Layout> all;
  for_each_mesh(ranks, [&](Layout layout) {
    layout.micro = layout.pp > 1 ? 2 : 1;
    for (const bool sequence : {false, true})
      for (int zero = 0; zero <= (layout.pp > 1 ? 1 : 3); ++zero) {
        if ((sequence && layout.tp == 1) || (zero > 0 && layout.dp == 1)) continue;
        layout.sequence = sequence;
        layout.zero = zero;
        all.push_back(layout);
      }
  });
  return all;
}

LayoutReport check_layouts(const std::function<Model()>& model, const LayoutCheckOptions& options) {
  Task task = task_of(model, options);
  const Trace plain = run_layout(task, {});
  const std::string& broken = plain.refused.empty() ? plain.failed : plain.refused;
  if (!broken.empty()) reject("the model does not train on one rank: " + broken);
  LayoutReport report;
  bool any = false;
  for (const Layout& layout : layouts_of(options)) {
    const std::string why = uneven(layout, options.input.shape[0]);
    report.layouts.push_back(
        why.empty() ? check_layout(task, plain, layout)
                    : LayoutDifference{.layout = layout, .refused = why, .weights = {}});
    const std::string& refused = report.layouts.back().refused;
    any = any || refused.empty();
    if (!options.layouts.empty() && !refused.empty())
      reject(name_of(layout) + " is refused: " + refused);
  }
  if (!any) reject("no layout of the check could run: " + report.text());
  return report;
}

}  // namespace troupe::train
