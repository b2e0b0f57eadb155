/// check_layouts(): whether a model trains alike in every layout. For tests of one's own layers,
/// beside check_gradients().
///
///     check_layouts([] { return my_model(); },
///                   {.input = {DType::i32, {8, 16}}, .ids = 61, .classes = 61});  // throws
///
/// It trains the model for a few steps on one rank, and then in each layout on ranks that are
/// threads of this process. All see the same batch. A layer that leaves out a sum over Run::tp, or
/// sums twice, differs in the loss, in the norm of the gradient or in the weights of a tensor.
#pragma once

#include "troupe/train/layers/layer.hpp"
#include "troupe/train/optimizers/optimizer.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace troupe::train {

struct LayoutCheckOptions {
  Spec input{DType::i32, {8, 8}};  ///< of a step, samples first; i32 token ids or f32
  std::int64_t ids = 2;            ///< token ids of the input are below
  Spec targets{DType::i32, {}};    ///< samples first; i32 or f32; rank 0: the shape of the losses
  std::int64_t classes = 2;        ///< i32 targets are below; the first of several is ignored
  std::vector<int> ranks = {2, 4};
  std::vector<Layout> layouts = {};  ///< instead of all that divide `ranks`
  int steps = 3;
  /// Of the difference in a number of a step over the plain run's; of that in a tensor over what one
  /// step of the plain run changes in it.
  double tolerance = 1e-4;
  std::uint64_t seed = 1;
  /// Without moments and clip, weights show the errors of gradients as they are.
  OptimizerOptions optimizer = {
      .kind = OptimizerKind::sgd, .rate = 0.1f, .decay = 0, .max_norm = 0};
};

/// One layout against the plain run: relative differences.
struct TROUPE_API LayoutDifference {
  struct Tensor {
    std::string name;
    double relative = 0;
  };
  Layout layout;
  std::string refused;          ///< why the model does not take the layout; empty: it ran
  double first_loss = 0;        ///< of the first step: forward passes alone
  double loss = 0, norm = 0;    ///< the largest of all steps
  std::vector<Tensor> weights;  ///< after the first step; rounding of the weights left out
  /// The tensor that differs most; one with relative = 0 when there is none.
  Tensor worst() const;
};

struct TROUPE_API LayoutReport {
  std::vector<LayoutDifference> layouts;
  /// One line a layout, and what to make of it.
  std::string text() const;
};

/// Every layout of so many ranks: tp with and without sequence, every zero, pp with two
/// micro-batches.
TROUPE_API std::vector<Layout> all_layouts(int ranks);

/// `model` makes a fresh one at each call, from several threads at a time; it ends in a loss. Throws
/// InvalidArgument, one sentence with layout and tensor, when
///  - initial weights of a layout are not those of one rank, bit by bit;
///  - a loss, a norm or a tensor differs by more than the tolerance;
///  - a tensor that tensor parallelism replicates is not the same on all of its ranks;
///  - a rank fails in a step, as ranks do whose calls of a communicator differ;
///  - a layout of options.layouts is refused, or every layout is.
/// Blocks; takes `steps` steps of one rank for each rank of each layout. Waits for a rank at most
/// 30 s.
TROUPE_API LayoutReport check_layouts(const std::function<Model()>& model,
                                      const LayoutCheckOptions& options);

}  // namespace troupe::train
