/// The norm of a gradient whose parts lie on several ranks, and the clip by it.
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

/// The groups that share a model's gradients; null where a group has one rank.
struct NormGroups {
  collective::Communicator* dp = nullptr;
  collective::Communicator* tp = nullptr;
  collective::Communicator* pp = nullptr;
};

/// The root of the sum of squares of all gradients after their reduction. Squares are summed in f64
/// over chunks of kChunk elements of a unit's slab, chunks over the shard of a unit, and shards in
/// the order of (unit, tp index): equal bits for every dp, zero and pp, and on all ranks. Tensors
/// that tensor parallelism replicates count on tp index 0 alone. Not finite when a gradient is not.
/// Under pp the index has the units of the whole model, and those of other stages are empty.
/// Every rank calls it; finishes all reductions; blocks for the others' sums, which count as
/// Purpose::norm.
TROUPE_API double global_norm(kernels::Device& device, Store& store, const NormGroups& groups);

/// What gradients are multiplied with so that their norm is at most max_norm; 1 for max_norm <= 0.
TROUPE_API float clip_factor(double norm, double max_norm);

namespace internal {

/// Elements of a slab whose squares count, inside of one chunk or over several whole ones.
struct CountedRange {
  Range range;             ///< of what the rank owns
  std::int64_t chunk = 0;  ///< that it begins in, from the first that the rank owns
  friend bool operator==(const CountedRange&, const CountedRange&) = default;
};
/// Pure. Of the range `owned` of a unit on this tp index, ascending.
TROUPE_API std::vector<CountedRange> counted_ranges(const Index& index, int unit,
                                                    const Range& owned, int tp_rank);

/// Pure. `squares` has those of the chunks of each owner one after the other, and an owner's by
/// unit. Result: the sum of every unit, of its chunks in ascending order.
TROUPE_API std::vector<double> sums_of_units(const Index& index, int owners,
                                             std::span<const double> squares);

/// Pure. `sums` has one number of each unit for every tp index of every stage, stage after stage; 0
/// for units of other stages. Adds them in the order of (unit, tp index).
TROUPE_API double add_units(std::span<const double> sums, std::size_t units);

}  // namespace internal
}  // namespace troupe::train
