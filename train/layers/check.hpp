/// check_gradients(): whether a layer's or a model's backward is the derivative of its forward, and
/// whether it keeps the rules of Layer. For tests of one's own layers, beside check_layouts().
///
///     Scale layer("scale", 8);
///     check_gradients(layer, {.input = {DType::f64, {3, 5, 8}}});  // throws, saying what is wrong
///
/// Runs in f64 on the CPU, at layout.compute = f64, with random weights and inputs. Compares with
/// central differences: single elements of every weight tensor and of the input, and for each a
/// random direction over all of its elements. Cost: about 2 * (elements + 1) forward passes a
/// tensor.
#pragma once

#include "troupe/train/layers/layer.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::train {

struct CheckOptions {
  Spec input{DType::f64, {3, 5, 8}};  ///< f64, or i32 for token ids
  std::int64_t ids = 2;               ///< token ids of the input are below
  Spec targets{DType::i32, {}};       ///< of a loss; f64 or i32; rank 0: the shape of its output
  std::int64_t classes = 2;           ///< i32 targets are below; the first of several is ignored
  double step = 1e-5;                 ///< of the differences
  double tolerance = 1e-6;            ///< of the relative error
  std::int64_t elements = 24;         ///< of each tensor, evenly spread
  std::uint64_t seed = 1;
  Recompute recompute = Recompute::none;
};

struct GradientError {
  std::string tensor;        ///< its name; "input"
  std::int64_t element = 0;  ///< -1: the random direction
  double expected = 0;       ///< by differences
  double got = 0;
  double relative = 0;  ///< difference over the tensor's largest gradient
};

struct TROUPE_API GradientReport {
  std::vector<GradientError> tensors;  ///< the worst of each
  /// The worst of all; one with relative = 0 when there is nothing to compare.
  GradientError worst() const;
  /// One line a tensor.
  std::string text() const;
};

/// Throws InvalidArgument, naming layer, tensor and element with both values, when an error exceeds
/// the tolerance; and, naming what was broken, when the layer
///  - writes outside y, dx or its saved, carry or temporary bytes, or changes x, dy or weights;
///  - gives another y, or other saved bytes, the second time (full recompute needs equal ones);
///  - adds to dx instead of writing it, or writes weight gradients instead of adding;
///  - leaves an element of y or dx unwritten, or needs what temporary held in an earlier call;
///  - is a loss and leaves Targets::scale out of its gradient;
///  - cannot go without dx (the first layer of a model has none);
///  - keeps ids of an index when it is declared again, for another one.
/// The layer declares its tensors: it must be new.
TROUPE_API GradientReport check_gradients(Layer& layer, const CheckOptions& options);
/// The same for a chain of layers, such as a whole model that ends in a loss.
TROUPE_API GradientReport check_gradients(const Model& model, const CheckOptions& options);

}  // namespace troupe::train
