/// The global norm of a gradient whose parts lie on several ranks, and clipping by it.
///
///     const double norm = global_norm(device, store, {mesh.dp.get(), mesh.tp.get()});
///     const float clip = clip_factor(norm, options.max_norm);
///     update_owned(device, index, unit, store.owned(unit), options, options.rate, step, clip);
#pragma once

#include "troupe/actors/collective/communicator.hpp"
#include "troupe/kernels/device/device.hpp"
#include "troupe/train/params/store.hpp"

#include <span>
#include <vector>

namespace troupe::train {

/// The groups over which a model's gradients are divided; null where a group has one rank.
struct NormGroups {
  collective::Communicator* dp = nullptr;
  collective::Communicator* tp = nullptr;
  collective::Communicator* pp = nullptr;
};

/// Returns the square root of the sum of squares of all gradients. Every rank calls it. It
/// finishes all reductions, and blocks for the other ranks' sums, which count as Purpose::norm.
///
/// Squares are summed in f64: over chunks of kChunk elements of a unit's slab, then over the
/// chunks of a unit's shard, then over shards in the order of (unit, tp index). This order gives
/// equal bits for every dp, zero and pp, and on all ranks. Tensors that tensor parallelism
/// replicates count on tp index 0 alone. The result is not finite when a gradient is not. Under
/// pp the index has the units of the whole model, and those of other stages are empty.
TROUPE_API double global_norm(kernels::Device& device, Store& store, const NormGroups& groups);

/// Returns the factor for the gradients that makes their norm at most max_norm; 1 for max_norm <=
/// 0.
TROUPE_API float clip_factor(double norm, double max_norm);

namespace internal {

/// Elements of a slab whose squares count, within one chunk or over several whole chunks.
struct CountedRange {
  Range range;             ///< relative to the first element that the rank owns
  std::int64_t chunk = 0;  ///< the chunk in which it begins, counted from the first that the rank
                           ///< owns
  friend bool operator==(const CountedRange&, const CountedRange&) = default;
};
/// Returns the ranges of `owned` that count on this tp index, ascending. A pure function.
TROUPE_API std::vector<CountedRange> counted_ranges(const Index& index, int unit,
                                                    const Range& owned, int tp_rank);

/// Returns the sum of every unit over its chunks in ascending order. `squares` has one number for
/// each chunk, owner after owner, and in each owner unit after unit. A pure function.
TROUPE_API std::vector<double> sums_of_units(const Index& index, int owners,
                                             std::span<const double> squares);

/// Adds `sums` in the order of (unit, tp index). `sums` has one number for each unit, for every
/// tp index of every stage, stage after stage, and 0 for units of other stages. A pure function.
TROUPE_API double add_units(std::span<const double> sums, std::size_t units);

}  // namespace internal
}  // namespace troupe::train
