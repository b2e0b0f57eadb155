/// Layout: how the ranks of a run divide a model and its batch. Plain data.
///
///     Layout layout{.dp = 4, .zero = 1, .micro = 2};
#pragma once

#include "troupe/kernels/device.hpp"
#include "troupe/runtime/base/assert.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::train {

/// The activations that backward computes again instead of keeping (Chen et al. 2016, Korthikanti
/// et al. 2022).
enum class Recompute : std::uint8_t { none, selective, full };
/// The optimizer state that lies in host memory.
enum class Offload : std::uint8_t { none, optimizer };

struct Layout {
  int dp = 1, tp = 1,
      pp = 1;     ///< ranks that divide the batch, tensors, layers; rank = (pp * DP + dp) * TP + tp
  int zero = 0;   ///< ZeRO stage: 1 shards moments, 2 gradients as well, 3 weights as well
  int micro = 1;  ///< micro-batches of a step on each rank
  bool sequence = false;  ///< sequence parallelism: with tp, activations between its regions are
                          ///< divided by rows
  /// Type of activations and of the weights that layers read: f32, bf16 or f16. With the 16-bit
  /// types the optimizer updates f32 master weights; gradients, their sums and losses are f32.
  /// f16 uses loss scaling.
  kernels::DType compute = kernels::DType::f32;
  Offload offload = Offload::none;
  Recompute recompute = Recompute::none;
  /// gpipe, 1f1b, interleaved (2 stages a rank), interleaved:V or file:PATH; see pipeline/text.hpp.
  std::string schedule = "1f1b";

  int ranks() const noexcept { return dp * tp * pp; }
};

/// A rank's index in its tensor-parallel group, and its rank in the pipeline.
struct RankPlace {
  int tp = 0, pp = 0;
};

/// Throws InvalidArgument, one sentence that says what to change, for an invalid layout: a size
/// below 1, zero outside 0..3, pp > 1 with zero >= 2, sequence with tp = 1, a malformed schedule,
/// or dp * tp * pp other than `ranks`. Does not read the schedule's file.
TROUPE_API void check(const Layout& layout, int ranks);

/// Sets dp, tp and pp from a text like "dp=2,tp=2". A size that the text does not name becomes 1.
/// Throws InvalidArgument, one sentence, for any other text.
TROUPE_API void set_mesh(Layout& layout, std::string_view sizes);

}  // namespace troupe::train
