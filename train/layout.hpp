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
  bool sequence = false;  ///< with tp: activations between its regions are divided as well
  kernels::DType compute = kernels::DType::f32;
  Offload offload = Offload::none;
  Recompute recompute = Recompute::none;
  std::string schedule = "1f1b";

  int ranks() const noexcept { return dp * tp * pp; }
};

/// `base` with the sizes of a text: "dp=2,tp=2,pp=1", in any order, each once at most. Throws
/// InvalidArgument, one sentence, for any other text.
TROUPE_API Layout with_mesh(std::string_view text, Layout base = {});

/// Throws InvalidArgument, one sentence that says what to change, for a layout that is none: sizes
/// below 1, zero outside 0..3, pp > 1 with zero >= 2, a number of ranks other than `ranks`.
TROUPE_API void check(const Layout& layout, int ranks);

}  // namespace troupe::train
