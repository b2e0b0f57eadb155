/// Tensor parallelism for layers: how ranks divide tensors, and the operations gather() and sum()
/// between the ranks of Run::tp (Shoeybi et al. 2019, section 3; Korthikanti et al. 2022, section
/// 4.2.2).
///
///     weight_ = index.add(unit, name, {out, in}, Group::decay, divided(index, layout, 0));
///     gather(run, own, whole);       // before a product whose weights are divided by columns of y
///     sum(run, whole, own);          // after a product whose weights are divided by columns of x
///
/// Here `own` are the rows that this rank has outside of the two products, and `whole` are the
/// rows of all ranks. Without Layout::sequence both are the same memory. Each operation is the
/// backward of the other:
///
///     |        | tp                    | tp and sequence              |
///     | gather | nothing               | all-gather of rows           |
///     | sum    | all-reduce, in place  | sum, scattered: reduce-scatter |
///
/// Both are ordered with the work of run.queue(). On the CPU they block until all ranks have
/// come. On a device whose communicator works there, the device waits and the host does not. A
/// gather and a sum together transfer 2(N-1)/N of the bytes of `whole`, with and without
/// sequence. They throw the communicator's errors; on a device a later call may throw them.
#pragma once

#include "troupe/train/layers/layer.hpp"

#include <cstdint>

namespace troupe::train::parts {

/// Returns the ranks that divide the rows of activations: tp with sequence, else 1.
inline int row_parts(const Layout& layout) noexcept {
  return layout.sequence ? layout.tp : 1;
}

/// Returns this rank's shard of a tensor that tp ranks divide along an axis; the whole with one
/// rank.
TROUPE_API TensorShard divided(const Index& index, const Layout& layout, int axis, int groups = 1);
/// Like divided(), for sizes that need not be a multiple of tp, such as a vocabulary.
TROUPE_API TensorShard divided_padded(const Index& index, const Layout& layout, int axis);
/// Returns the shard of a tensor that all tp ranks have, and whose gradient comes from this
/// rank's rows alone.
TROUPE_API TensorShard of_own_rows(const Layout& layout);

/// Returns this rank's rows of `whole`; without sequence all of them.
TROUPE_API TensorView own_rows(const Run& run, const TensorView& whole);
/// Returns the number of the first row of this rank.
TROUPE_API std::int64_t first_own_row(const Run& run, std::int64_t rows);

/// Gathers the rows of all ranks. `own` may be its rows of `whole`; without sequence it must be.
TROUPE_API void gather(const Run& run, const TensorView& own, const TensorView& whole);
/// Sums `whole` over the ranks and writes this rank's rows to `own`. `own` may be its rows of
/// `whole`; without sequence it must be. Changes `whole`.
TROUPE_API void sum(const Run& run, const TensorView& whole, const TensorView& own);

/// Return what gather() and sum() of a tensor of `whole` bytes exchange.
inline Exchanged gather_exchange(const Layout& layout, std::int64_t whole) noexcept {
  return {.all_gather = row_parts(layout) > 1 ? whole : 0};
}
inline Exchanged sum_exchange(const Layout& layout, std::int64_t whole) noexcept {
  if (layout.tp == 1) return {};
  return row_parts(layout) > 1 ? Exchanged{.reduce_scatter = whole}
                               : Exchanged{.all_reduce = whole};
}

/// Gathers the parts of all ranks in `all`, in the order of ranks. `part` may be this rank's
/// place there.
TROUPE_API void all_gather(const Run& run, const TensorView& part, const TensorView& all);
/// Sums `view` over the ranks, in place.
TROUPE_API void all_reduce(const Run& run, const TensorView& view);

}  // namespace troupe::train::parts
