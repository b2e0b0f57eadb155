/// check_gradients(): checks that the backward pass of a layer or model is the derivative of its
/// forward pass, and that layers obey the rules of Layer. For tests of your own layers, beside
/// check_layouts().
///
///     Scale layer("scale", 8);
///     check_gradients(layer, {.input = {DType::f64, {3, 5, 8}}});  // throws, saying what is wrong
///
/// Runs in f64 on the CPU, at layout.compute = f64, with random weights and inputs. Compares with
/// central differences: single elements of the input and of every weight tensor, and for each of
/// these one random direction over all elements. Costs about 2 * (elements + 1) forward passes
/// for each tensor.
#pragma once

#include "troupe/train/layers/layer.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::train {

struct CheckOptions {
  Spec input{DType::f64, {3, 5, 8}};  ///< f64, or i32 for token ids
  std::int64_t ids = 2;               ///< token ids of the input are below this
  Spec targets{DType::i32, {}};       ///< of a loss; f64 or i32; without dimensions: the shape of
                                      ///< its output
  std::int64_t classes = 2;           ///< i32 targets are below this; the first of several targets
                                      ///< is ignored
  double step = 1e-5;                 ///< of the finite differences
  double tolerance = 1e-6;            ///< for the relative error
  std::int64_t elements = 24;         ///< checked in each tensor, evenly spread
  std::uint64_t seed = 1;
  Recompute recompute = Recompute::none;
};

struct GradientError {
  std::string tensor;        ///< its name, or "input"
  std::int64_t element = 0;  ///< -1: the random direction
  double expected = 0;       ///< from finite differences
  double got = 0;
  double relative = 0;  ///< difference divided by the tensor's largest gradient
};

struct TROUPE_API GradientReport {
  std::vector<GradientError> tensors;  ///< the worst error of each tensor
  /// Returns the worst error of all; one with relative = 0 when there is nothing to compare.
  GradientError worst() const;
  /// Returns one line for each tensor.
  std::string text() const;
};

/// Compares all gradients and returns the errors. The layer declares its tensors, so it must be
/// new. Throws InvalidArgument, naming layer, tensor and element with both values, when an error
/// exceeds the tolerance. Also throws, naming the broken rule, when the layer
///  - writes outside y, dx or its saved, carry or temporary bytes, or changes x, dy or weights;
///  - gives another y or other saved bytes in a second forward (full recompute needs equal ones);
///  - adds to dx instead of writing it, or writes weight gradients instead of adding;
///  - leaves an element of y or dx unwritten, or needs what temporary held in an earlier call;
///  - is a loss and leaves Targets::scale out of its gradient;
///  - cannot run without dx (the first layer of a model has none);
///  - keeps ids of an earlier index when it is declared for another one.
TROUPE_API GradientReport check_gradients(Layer& layer, const CheckOptions& options);
/// Like check_gradients() above, for a chain of layers, such as a whole model that ends in a
/// loss.
TROUPE_API GradientReport check_gradients(const Model& model, const CheckOptions& options);

}  // namespace troupe::train
