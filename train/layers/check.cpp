#include "troupe/train/layers/check.hpp"

#include "troupe/kernels/cross_entropy/cross_entropy.hpp"
#include "troupe/kernels/philox/philox.hpp"
#include "troupe/train/internal/reject.hpp"
#include "troupe/train/layers/internal/workbench.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace troupe::train {
namespace {

using internal::reject;
using internal::Workbench;

std::span<double> numbers(const TensorView& view) {
  return {view.as<double>(), static_cast<std::size_t>(view.count())};
}

std::vector<double> random_numbers(std::int64_t count, std::uint64_t seed, std::uint64_t stream) {
  std::vector<float> made(static_cast<std::size_t>(count));
  kernels::philox_normal(made.data(), count, seed, stream, 0, 0.0f, 1.0f);
  return {made.begin(), made.end()};
}

void fill_ids(const TensorView& view, std::int64_t end, std::uint64_t seed, std::uint64_t stream) {
  for (std::int64_t i = 0; i < view.count(); ++i)
    view.as<std::int32_t>()[i] = static_cast<std::int32_t>(
        kernels::philox_bits(seed, stream, static_cast<std::uint64_t>(i)) %
        static_cast<std::uint64_t>(end));
}

/// Random values of the view's type.
void fill(const TensorView& view, std::int64_t ids, std::uint64_t seed, std::uint64_t stream) {
  if (view.type == DType::i32) return fill_ids(view, ids, seed, stream);
  if (view.type != DType::f64) reject("check_gradients makes f64 and i32 inputs only");
  std::ranges::copy(random_numbers(view.count(), seed, stream), view.as<double>());
}

std::string text(double value) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.9g", value);
  return digits;
}

/// One of the tensors whose elements are varied.
struct Variable {
  std::string name;
  std::span<double> values;
  std::vector<double> gradient;
  double largest = 0;  // largest magnitude in its gradient
};

class Checker {
 public:
  Checker(std::vector<Layer*> layers, const CheckOptions& options)
      : options_(options),
        name_(layers.size() == 1 ? layers[0]->name() : "the model"),
        bench_(std::move(layers),
               {.layout = {.compute = DType::f64, .recompute = options.recompute},
                .input = options.input,
                .targets = options.targets,
                .seed = options.seed,
                .loss_scale = 1.5}) {}

  GradientReport run() {
    fill_values();
    check_rules();
    GradientReport report;
    for (const Variable& v : variables_) floor_ = std::max(floor_, 1e-4 * v.largest);
    for (Variable& v : variables_) report.tensors.push_back(worst_of(v));
    const GradientError worst = report.worst();
    if (!(worst.relative <= options_.tolerance)) reject(describe(worst));
    return report;
  }

 private:
  void fill_values() {
    const std::uint64_t seed = options_.seed;
    fill(bench_.input(), options_.ids, seed, 1);
    if (!bench_.ends_in_loss()) fill(bench_.direction(), 1, seed, 2);
    if (bench_.ends_in_loss()) fill(bench_.targets(), options_.classes, seed, 3);
    if (bench_.targets().type == DType::i32 && bench_.targets().count() > 1)
      *bench_.targets().as<std::int32_t>() = kernels::kIgnore;
    bench_.initialize();
    std::uint64_t stream = 4;
    // Move weights away from ones and zeros, where gradients can vanish.
    for (const TensorId id : bench_.tensors()) {
      const std::span<double> w = numbers(bench_.weights(id));
      const std::vector<double> noise = random_numbers(std::ssize(w), seed, stream++);
      for (std::size_t i = 0; i < w.size(); ++i) w[i] += 0.2 * noise[i];
    }
  }

  void check_rules() {
    bench_.forward();
    const std::uint64_t first = bench_.forward_hash();
    bench_.forward();
    if (bench_.forward_hash() != first)
      reject(name_ + ": a second forward() of the same input gives other outputs or saved bytes");
    require_finite(bench_.output(), "forward() leaves y");
    const std::uint64_t kept = bench_.read_only_hash();
    bench_.fill_gradients(0);
    bench_.backward();
    if (bench_.read_only_hash() != kept)
      reject(name_ + ": a backward pass changes x, dy or weights, which it may only read");
    if (varies_input()) require_finite(bench_.input_gradient(), "backward_input() leaves dx");
    variables_ = variables();
    check_sums();
  }

  void require_finite(const TensorView& view, const std::string& what) {
    const std::span<double> all = numbers(view);
    for (std::size_t i = 0; i < all.size(); ++i)
      if (!std::isfinite(all[i]))
        reject(name_ + ": " + what + " without a number at element " + std::to_string(i) +
               "; it must be written, whatever it held before");
  }

  bool varies_input() const { return bench_.input().type == DType::f64; }

  std::vector<Variable> variables() {
    std::vector<Variable> all;
    for (const TensorId id : bench_.tensors())
      all.push_back(
          {bench_.index()[id].name, numbers(bench_.weights(id)), bench_.whole_gradient(id)});
    if (varies_input()) {
      const std::span<double> dx = numbers(bench_.input_gradient());
      all.push_back({"input", numbers(bench_.input()), {dx.begin(), dx.end()}});
    }
    for (Variable& v : all)
      for (const double g : v.gradient) v.largest = std::max(v.largest, std::abs(g));
    return all;
  }

  /// Checks that weight gradients are added to, and do not depend on dx.
  void check_sums() {
    bench_.backward(/*with_input=*/false);
    std::size_t i = 0;
    for (const TensorId id : bench_.tensors()) {
      const Variable& once = variables_[i++];
      const std::vector<double> twice = bench_.whole_gradient(id);
      for (std::size_t k = 0; k < twice.size(); ++k)
        if (!(std::abs(twice[k] - 2 * once.gradient[k]) <= 1e-9 * (once.largest + 1e-30)))
          reject(name_ + ": the gradient of " + once.name + " is " + text(once.gradient[k]) +
                 " at element " + std::to_string(k) + " after one backward pass, and " +
                 text(twice[k]) + " after a second one without dx; it must be added to what is " +
                 "there, and not need dx");
    }
  }

  /// Moves the variable along `direction` and back. Returns the derivative.
  double difference(Variable& v, const std::vector<double>& direction, double step) {
    const std::vector<double> kept(v.values.begin(), v.values.end());
    double ends[2] = {0, 0};
    for (int side = 0; side < 2; ++side) {
      for (std::size_t i = 0; i < kept.size(); ++i)
        v.values[i] = kept[i] + (side == 0 ? step : -step) * direction[i];
      ends[side] = bench_.forward();
    }
    std::ranges::copy(kept, v.values.begin());
    return (ends[0] - ends[1]) / (2 * step);
  }

  /// Compares with finite differences, and on a mismatch again with a shorter step: a kink of an
  /// activation between the two ends spoils a difference, and a shorter step may avoid it.
  GradientError compare(Variable& v, const std::vector<double>& direction, std::int64_t element,
                        double got, double scale) {
    GradientError error{v.name, element, 0, got, 0};
    for (const double step : {options_.step, options_.step / 16}) {
      error.expected = difference(v, direction, step);
      const double size = std::max({scale, std::abs(error.expected), floor_});
      error.relative = std::abs(error.expected - got) / size;
      if (error.relative <= options_.tolerance) break;
    }
    return error;
  }

  GradientError worst_of(Variable& v) {
    const auto count = static_cast<std::int64_t>(v.values.size());
    const std::int64_t stride =
        std::max<std::int64_t>(1, count / std::max<std::int64_t>(1, options_.elements));
    GradientError worst = compare_direction(v);
    std::vector<double> unit(v.values.size());
    for (std::int64_t i = 0; i < count; i += stride) {
      const auto k = static_cast<std::size_t>(i);
      unit[k] = 1;
      const GradientError error = compare(v, unit, i, v.gradient[k], v.largest);
      unit[k] = 0;
      if (!(error.relative <= worst.relative)) worst = error;
    }
    return worst;
  }

  /// Compares along a random direction of length 1, which involves every element.
  GradientError compare_direction(Variable& v) {
    std::vector<double> direction = random_numbers(std::ssize(v.values), options_.seed, 1000);
    double length = 0, got = 0, norm = 0;
    for (const double d : direction) length += d * d;
    for (std::size_t i = 0; i < direction.size(); ++i) {
      direction[i] /= std::sqrt(length);
      got += direction[i] * v.gradient[i];
      norm += v.gradient[i] * v.gradient[i];
    }
    return compare(v, direction, -1, got, std::sqrt(norm));
  }

  std::string describe(const GradientError& e) const {
    const std::string where =
        e.element < 0 ? " along a random direction" : " at element " + std::to_string(e.element);
    return name_ + ": the gradient of " + e.tensor + where + " is " + text(e.got) +
           ", but differences of forward() give " + text(e.expected) + " (relative error " +
           text(e.relative) + ")";
  }

  const CheckOptions& options_;
  std::string name_;
  Workbench bench_;
  std::vector<Variable> variables_;
  double floor_ = 1e-300;
};

}  // namespace

GradientError GradientReport::worst() const {
  GradientError worst;
  for (const GradientError& e : tensors)
    if (!(e.relative <= worst.relative)) worst = e;
  return worst;
}

std::string GradientReport::text() const {
  std::string lines;
  for (const GradientError& e : tensors)
    lines += e.tensor + ": relative error " + train::text(e.relative) + "\n";
  return lines;
}

GradientReport check_gradients(Layer& layer, const CheckOptions& options) {
  return Checker({&layer}, options).run();
}

GradientReport check_gradients(const Model& model, const CheckOptions& options) {
  std::vector<Layer*> layers;
  for (const std::unique_ptr<Layer>& layer : model) layers.push_back(layer.get());
  return Checker(std::move(layers), options).run();
}

}  // namespace troupe::train
