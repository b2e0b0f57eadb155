/// check_layouts(): checks that a model trains alike in every layout. For tests of your own
/// layers, beside check_gradients() (layers/check.hpp).
///
///     check_layouts([] { return my_model(); },
///                   {.input = {DType::i32, {8, 16}}, .ids = 61, .classes = 61});  // throws
///
/// It trains the model for a few steps on one rank, and then in each layout on ranks that are
/// threads of this process. All runs see the same batch. A layer that forgets a sum over Run::tp,
/// or sums twice, changes the loss, the norm of the gradient or the weights of a tensor.
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
  std::int64_t ids = 2;            ///< token ids of the input are below this
  Spec targets{DType::i32, {}};    ///< samples first; i32 or f32; without dimensions: the shape of
                                   ///< the losses
  std::int64_t classes = 2;        ///< i32 targets are below this; the first of several targets is
                                   ///< ignored
  std::vector<int> ranks = {2, 4};
  std::vector<Layout> layouts = {};  ///< checked instead of all layouts of `ranks`
  int steps = 3;
  /// For a loss or a norm, the bound of its difference relative to the value of the run on one
  /// rank. For a tensor, the bound of its difference relative to its change in one step of that
  /// run.
  double tolerance = 1e-4;
  std::uint64_t seed = 1;
  /// Without moments and clipping, errors of gradients show unchanged in the weights.
  OptimizerOptions optimizer = {
      .kind = OptimizerKind::sgd, .rate = 0.1f, .decay = 0, .max_norm = 0};
};

/// Relative differences of one layout to the run on one rank.
struct TROUPE_API LayoutDifference {
  struct Tensor {
    std::string name;
    double relative = 0;
  };
  Layout layout;
  std::string refused;          ///< why the model does not accept the layout; empty: it ran
  double first_loss = 0;        ///< difference in the first step: forward passes alone
  double loss = 0, norm = 0;    ///< largest difference over all steps
  std::vector<Tensor> weights;  ///< differences after the first step, without the rounding of the
                                ///< weights
  /// Returns the tensor that differs most; one with relative = 0 when none differs.
  Tensor worst() const;
};

struct TROUPE_API LayoutReport {
  std::vector<LayoutDifference> layouts;
  /// Returns one line for each layout.
  std::string text() const;
};

/// Returns every layout of `ranks` ranks: tp with and without sequence, every zero, and pp with
/// two micro-batches.
TROUPE_API std::vector<Layout> all_layouts(int ranks);

/// Trains the model in every layout and returns the differences to one rank. `model` returns a
/// new model at each call, and several threads call it at a time. The model ends in a loss.
/// Throws InvalidArgument, one sentence with layout and tensor, when
///  - initial weights in a layout are not bitwise those of one rank;
///  - a loss, a norm or a tensor differs by more than the tolerance;
///  - a tensor that tensor parallelism replicates differs between its ranks;
///  - a rank fails in a step, for example because ranks make different calls of a communicator;
///  - a layout of options.layouts is refused, or every layout is.
///
/// Blocks. Costs `steps` steps of one rank for each rank of each layout. A wait for a rank ends
/// after 30 s at most.
TROUPE_API LayoutReport check_layouts(const std::function<Model()>& model,
                                      const LayoutCheckOptions& options);

}  // namespace troupe::train
