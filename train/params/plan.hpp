/// What a layout costs a rank before anything is allocated: bytes by kind, traffic of a step, and
/// which layouts fit into a memory.
///
///     const Plan wanted = plan(index, layout, activation_bytes, {.moments = 2});
///     std::cout << table(plans_that_fit(model, {.memory = 8_GiB.count, .ranks = {1, 2, 4}}));
///
/// Numbers are those that Store::bytes(), Engine::bytes() and the communicators' traffic() have
/// after a step, to the byte: sharded state after Rajbhandari et al. 2020, section 3. For a block of
/// a transformer over s x b x h activations a tensor-parallel rank moves 4 sums of them, 6 with full
/// recompute (Korthikanti et al. 2022, section 4), and a stage sends one of them to each neighbour
/// for every micro-batch (Narayanan et al. 2021, section 3.2).
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

/// What a rank moves in a step over groups other than the data-parallel one: payload alone.
struct Exchanges {
  collective::Traffic tp;    ///< sums and gathers of activations, sums of partial gradients
  collective::Traffic pp;    ///< activations and their gradients, to other stages
  collective::Traffic tied;  ///< between the first and the last stage: weights, or gradients
  std::uint64_t payload() const noexcept { return tp.payload() + pp.payload() + tied.payload(); }
};

/// One rank of a layout.
struct Plan {
  Layout layout;
  RankPlace rank;
  std::int64_t parameters = 0;  ///< of the rank's model, tied ones once
  /// transient and peak_transient: the most of a step.
  Store::Bytes store;
  std::int64_t activations = 0;
  std::int64_t partials = 0;  ///< in which partial gradients are packed, to be summed over tp
  /// A unit's initial values in f32 where a master is shared: there before there are activations.
  std::int64_t initial = 0;
  std::int64_t staging = 0;  ///< pinned memory through which offloaded moments are updated
  /// Of a step on the data-parallel group, rounded down. Counts of targets are not in it.
  collective::Traffic traffic;
  Exchanges exchanges;

  /// The most that lies on the device at one time; and in memory of the host, pinned counted in.
  std::int64_t device_bytes() const noexcept {
    return store.total() - store.host + partials + std::max(activations, initial);
  }
  std::int64_t host_bytes() const noexcept { return store.host + staging; }
};

struct PlanOptions {
  int moments = 2;  ///< OptimizerOptions::moments()
};

/// Bytes of activations of one micro-batch on a rank of the layout.
using ActivationBytes = std::function<std::int64_t(const Layout&)>;

/// `index` is that of the layout: sealed for layout.dp. Pure; costs time in proportion to units.
/// Throws InvalidArgument for an index that is not sealed for layout.dp, for sizes that are no
/// 64-bit numbers, and as check(Layout) does.
TROUPE_API Plan plan(const Index& index, const Layout& layout, const ActivationBytes& activations,
                     const PlanOptions& options = {});

/// A model that can be planned in several layouts.
struct PlannedModel {
  std::function<Index(const Layout&, const RankPlace&)> index;  ///< sealed
  std::function<std::int64_t(const Layout&, const RankPlace&)> activations;
  /// None: nothing is moved.
  std::function<Exchanges(const Layout&, const RankPlace&)> exchanges = {};
  PlanOptions options = {};
};

/// Of one rank. Throws as plan() above, and what the model's functions throw.
TROUPE_API Plan plan(const PlannedModel& model, const Layout& layout, const RankPlace& rank);
/// Of the rank that needs the most of its device, the first of equal ones. Ranks that divide tensors
/// have the same bytes; those of the last ones are padding in part.
TROUPE_API Plan plan(const PlannedModel& model, const Layout& layout);

struct PlanSearch {
  std::int64_t memory = 0;       ///< bytes of a rank's device
  std::int64_t host = -1;        ///< bytes of the host for a rank; below 0: no limit
  std::vector<int> ranks = {1};  ///< numbers of ranks to try: dp * tp * pp
  int most_dp = 1 << 20;         ///< a step has no samples for more
  int most_tp = 1, most_pp = 1;  ///< ranks that divide tensors, layers
  Layout base = {};              ///< what is not searched: micro, compute, schedule
};

/// Those of every mesh, zero, recompute (none, full) and offload that fit, by the rank that needs
/// the most: in the order of ranks, of tp * pp, of tp, and then of what costs the least time:
/// nothing, zero 1 to 3, recompute, offload. Tensor-parallel ranks divide activations too
/// (Layout::sequence) where the model and its input can. Sizes tp and pp that the model refuses are
/// left out. With dp = 1 zero changes nothing and is not tried.
TROUPE_API std::vector<Plan> plans_that_fit(const PlannedModel& model, const PlanSearch& search);

/// A line for each plan, with a heading; sizes as size_text().
TROUPE_API std::string table(std::span<const Plan> plans);

/// One sentence for an OutOfMemory: what the plan needs, by kind, of how much memory (0: not
/// known), and which other layouts fit (the first three), or what to change when none does.
TROUPE_API std::string memory_sentence(const Plan& plan, std::int64_t memory,
                                       std::span<const Plan> fitting);

/// "512 B", "1.50 KiB", "475.0 MiB": three digits at least.
TROUPE_API std::string size_text(std::int64_t bytes);
/// "dp=2 tp=2 sequence zero=1 micro=4 recompute=full offload=optimizer"; what is not said is the default.
TROUPE_API std::string layout_text(const Layout& layout);

}  // namespace troupe::train
