/// Layout: how the ranks of a run divide a model and its batch. Data, no behaviour.
///
///     Layout layout{.dp = 4, .zero = 1, .micro = 2};
#pragma once

#include "troupe/kernels/device.hpp"
#include "troupe/runtime/base/assert.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::train {

/// What is computed again in backward instead of kept (Chen et al. 2016, Korthikanti et al. 2022).
enum class Recompute : std::uint8_t { none, selective, full };
/// What of the optimizer lies in the host's memory.
enum class Offload : std::uint8_t { none, optimizer };

struct Layout {
  int dp = 1, tp = 1,
      pp = 1;     ///< ranks that divide the batch, tensors, layers; rank = (pp * DP + dp) * TP + tp
  int zero = 0;   ///< what data-parallel ranks share: 1 moments, 2 and gradients, 3 and weights
  int micro = 1;  ///< micro-batches of a step on each rank
  bool sequence = false;  ///< with tp: rows of activations between its regions are divided as well
  /// Of activations and of the weights that layers read: f32, bf16 or f16. Beside 16 bits a master
  /// of f32 is updated, gradients, their sums and losses are f32, and f16 has a loss scale.
  kernels::DType compute = kernels::DType::f32;
  Offload offload = Offload::none;
  Recompute recompute = Recompute::none;
  /// gpipe, 1f1b, interleaved (2 stages a rank), interleaved:V or file:PATH; see pipeline/text.hpp.
  std::string schedule = "1f1b";

  int ranks() const noexcept { return dp * tp * pp; }
};

/// A rank's place among those that divide tensors, and in the pipeline.
struct RankPlace {
  int tp = 0, pp = 0;
};

/// Throws InvalidArgument, one sentence that says what to change, for a layout that is none: sizes
/// below 1, zero outside 0..3, pp > 1 with zero >= 2, a schedule without meaning (its file is not
/// read), a number of ranks other than `ranks`.
TROUPE_API void check(const Layout& layout, int ranks);

/// Sets dp, tp and pp to those of a text like "dp=2,tp=2"; a size that it does not name is 1.
/// Throws InvalidArgument, one sentence, for another text.
TROUPE_API void set_mesh(Layout& layout, std::string_view sizes);

}  // namespace troupe::train
