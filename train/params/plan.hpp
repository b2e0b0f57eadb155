/// The planner: what a layout costs a rank before anything is allocated. Computes bytes by kind
/// and the traffic of a step, and finds the layouts that fit into a memory.
///
///     const Plan wanted = plan(index, layout, activation_bytes, {.moments = 2});
///     std::cout << table(plans_that_fit(model, {.memory = 8_GiB.count, .ranks = {1, 2, 4}}));
///
/// The numbers equal, to the byte, what Store::bytes(), Engine::bytes() and the communicators'
/// traffic() report after a step. Sharded state follows Rajbhandari et al. 2020, section 3. For a
/// transformer block over s x b x h activations a tensor-parallel rank transfers 4 sums of them,
/// 6 with full recompute (Korthikanti et al. 2022, section 4). A stage sends the activations once
/// to each neighbour for every micro-batch (Narayanan et al. 2021, section 3.2).
#pragma once

#include "troupe/actors/collective/traffic.hpp"
#include "troupe/train/layout.hpp"
#include "troupe/train/params/index.hpp"
#include "troupe/train/params/store.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace troupe::train {

/// Payload that a rank sends in a step over groups other than the data-parallel one.
struct Exchanges {
  collective::Traffic tp;    ///< sums and gathers of activations, sums of partial gradients
  collective::Traffic pp;    ///< activations and their gradients, to other stages
  collective::Traffic tied;  ///< between the first and the last stage: weights, or gradients
  std::uint64_t payload() const noexcept { return tp.payload() + pp.payload() + tied.payload(); }
};

/// The plan of one rank of a layout.
struct Plan {
  Layout layout;
  RankPlace rank;
  std::int64_t parameters = 0;  ///< of the rank's model; tied ones count once
  /// Its transient and peak_transient are the most of a step.
  Store::Bytes store;
  std::int64_t activations = 0;
  std::int64_t partials = 0;  ///< memory in which partial gradients are packed before they are
                              ///< summed over tp
  /// A unit's initial values in f32 when the master weights are sharded. Freed before activations
  /// are allocated.
  std::int64_t initial = 0;
  std::int64_t staging = 0;  ///< pinned memory for updates of offloaded moments
  /// Traffic of a step on the data-parallel group, rounded down, without the counts of targets.
  collective::Traffic traffic;
  Exchanges exchanges;

  /// Returns the most bytes on the device at one time. host_bytes() are those on the host, with
  /// pinned ones.
  std::int64_t device_bytes() const noexcept {
    return store.total() - store.host + partials + std::max(activations, initial);
  }
  std::int64_t host_bytes() const noexcept { return store.host + staging; }
};

struct PlanOptions {
  int moments = 2;  ///< OptimizerOptions::moments()
};

/// Returns the bytes of activations of one micro-batch on a rank of the layout.
using ActivationBytes = std::function<std::int64_t(const Layout&)>;

/// Plans one rank; a pure function. `index` must be the layout's, sealed for layout.dp. Costs
/// time in proportion to the units. Throws InvalidArgument for an index that is not sealed for
/// layout.dp, when a size overflows 64 bits, and as check(Layout).
TROUPE_API Plan plan(const Index& index, const Layout& layout, const ActivationBytes& activations,
                     const PlanOptions& options = {});

/// A model that can be planned in several layouts.
struct PlannedModel {
  std::function<Index(const Layout&, const RankPlace&)> index;  ///< sealed
  std::function<std::int64_t(const Layout&, const RankPlace&)> activations;
  /// Empty: nothing is exchanged.
  std::function<Exchanges(const Layout&, const RankPlace&)> exchanges = {};
  PlanOptions options = {};
};

/// Plans one rank. Throws as plan() above, and what the model's functions throw.
TROUPE_API Plan plan(const PlannedModel& model, const Layout& layout, const RankPlace& rank);
/// Plans the rank that needs the most of its device, the first of equal ones. Tensor-parallel
/// ranks have the same bytes; some of those of the last ranks are padding.
TROUPE_API Plan plan(const PlannedModel& model, const Layout& layout);

struct PlanSearch {
  std::int64_t memory = 0;       ///< bytes of a rank's device memory
  std::int64_t host = -1;        ///< bytes of host memory for a rank; below 0: no limit
  std::vector<int> ranks = {1};  ///< numbers of ranks to try: dp * tp * pp
  int most_dp = 1 << 20;         ///< a step has too few samples for more
  int most_tp = 1, most_pp = 1;  ///< most ranks that divide tensors, and layers
  Layout base = {};              ///< settings that are not searched: micro, compute, schedule
};

/// Returns the plans that fit, out of every mesh, zero, recompute (none, full) and offload. Each
/// is the plan of the rank that needs the most. They are sorted by ranks, by tp * pp, by tp, and
/// then by cost in time: the plain layout first, then zero 1 to 3, recompute, offload.
/// Tensor-parallel ranks also divide activations (Layout::sequence) where the model and its input
/// allow it. Leaves out sizes tp and pp that the model refuses. With dp = 1 it does not try zero,
/// which would change nothing.
TROUPE_API std::vector<Plan> plans_that_fit(const PlannedModel& model, const PlanSearch& search);

/// Returns a heading and one line for each plan; sizes are written as by size_text().
TROUPE_API std::string table(std::span<const Plan> plans);

/// Returns one sentence for an OutOfMemory: what the plan needs, by kind, of how much memory (0:
/// unknown), and the first three other layouts that fit, or what to change when none does.
TROUPE_API std::string memory_sentence(const Plan& plan, std::int64_t memory,
                                       std::span<const Plan> fitting);

/// Returns a text like "512 B", "1.50 KiB" or "475.0 MiB", with at least three digits from KiB
/// on.
TROUPE_API std::string size_text(std::int64_t bytes);
/// Returns a text like "dp=2 tp=2 sequence zero=1 micro=4 recompute=full offload=optimizer".
/// Values that it leaves out are the defaults.
TROUPE_API std::string layout_text(const Layout& layout);

}  // namespace troupe::train
