/// Tensor parallelism for layers: which part of a tensor a rank has, and the two operations between
/// the ranks of Run::tp (Shoeybi et al. 2019, section 3; Korthikanti et al. 2022, section 4.2.2).
///
///     weight_ = index.add(unit, name, {out, in}, Group::decay, divided(index, layout, 0));
///     gather(run, own, whole);       // before a product whose weights are divided by columns of y
///     sum(run, whole, own);          // after a product whose weights are divided by columns of x
///
/// `own` are the rows that this rank has between such regions, `whole` those of all ranks. They are
/// the same memory without Layout::sequence. Each operation is the other's backward:
///
///     |        | tp                    | tp and sequence              |
///     | gather | nothing               | all-gather of rows           |
///     | sum    | all-reduce, in place  | sum, scattered: reduce-scatter |
///
/// They are ordered with what run.queue() computes. On the CPU they block until all ranks have come;
/// on a device whose communicator works there, the device waits and the host does not. Payload of a
/// gather and a sum together: 2(N-1)/N of the bytes of `whole`, with and without sequence. They
/// throw the communicator's errors; a device's may come with a later call.
#pragma once

#include "troupe/train/layers/layer.hpp"

#include <cstdint>

namespace troupe::train::parts {

/// Ranks that divide the rows of activations: tp with sequence, else 1.
inline int row_parts(const Layout& layout) noexcept {
  return layout.sequence ? layout.tp : 1;
}

/// This rank's shard of a tensor that tp ranks divide along an axis; the whole with one rank.
TROUPE_API TensorShard divided(const Index& index, const Layout& layout, int axis, int groups = 1);
/// The same for sizes that tp need not divide: a vocabulary.
TROUPE_API TensorShard divided_padded(const Index& index, const Layout& layout, int axis);
/// A tensor that all tp ranks have, and whose gradient comes from this rank's rows alone.
TROUPE_API TensorShard of_own_rows(const Layout& layout);

/// The rows of `whole` that are this rank's; all of them without sequence.
TROUPE_API TensorView own_rows(const Run& run, const TensorView& whole);
/// Number of the first of them.
TROUPE_API std::int64_t first_own_row(const Run& run, std::int64_t rows);

/// `own` may be its rows of `whole`; without sequence it must be.
TROUPE_API void gather(const Run& run, const TensorView& own, const TensorView& whole);
/// `own` may be its rows of `whole`; without sequence it must be. Changes `whole`.
TROUPE_API void sum(const Run& run, const TensorView& whole, const TensorView& own);

/// What gather() and sum() of a tensor with so many bytes exchange.
inline Exchanged gather_exchange(const Layout& layout, std::int64_t whole) noexcept {
  return {.all_gather = row_parts(layout) > 1 ? whole : 0};
}
inline Exchanged sum_exchange(const Layout& layout, std::int64_t whole) noexcept {
  if (layout.tp == 1) return {};
  return row_parts(layout) > 1 ? Exchanged{.reduce_scatter = whole}
                               : Exchanged{.all_reduce = whole};
}

/// Every rank gets the parts of all in `all`, in the order of ranks; `part` may be its own there.
TROUPE_API void all_gather(const Run& run, const TensorView& part, const TensorView& all);
/// Sums `view` over the ranks, in place.
TROUPE_API void all_reduce(const Run& run, const TensorView& view);

}  // namespace troupe::train::parts
