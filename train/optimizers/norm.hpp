/// The norm of a gradient whose parts lie on several ranks, and the clip by it.
///
///     const double norm = global_norm(device, store, mesh.dp.get());
///     const float clip = clip_factor(norm, options.max_norm);
///     update_owned(device, index, unit, store.owned(unit), options, options.rate, step, clip);
#pragma once

#include "troupe/actors/collective/communicator.hpp"
#include "troupe/kernels/device/device.hpp"
#include "troupe/train/params/store.hpp"

namespace troupe::train {

/// The root of the sum of squares of all gradients after their reduction. Squares are summed in f64
/// over chunks of kChunk elements of a unit's slab, and the chunks' sums are added in the order of
/// (unit, chunk): equal bits for every zero and on all ranks. Not finite when a gradient is not.
/// Every rank calls it; finishes all reductions; blocks for the others' sums, which count as
/// Purpose::norm. `dp` may be null for one rank. Tensor parallelism is not known here.
TROUPE_API double global_norm(kernels::Device& device, Store& store, collective::Communicator* dp);

/// What gradients are multiplied with so that their norm is at most max_norm; 1 for max_norm <= 0.
TROUPE_API float clip_factor(double norm, double max_norm);

}  // namespace troupe::train
