#include "troupe/train/layers/parts/parallel.hpp"

#include "troupe/runtime/base/assert.hpp"
#include "troupe/train/internal/reject.hpp"

namespace troupe::train::parts {
namespace {

using collective::Communicator;
using collective::Terms;
using collective::Work;

Communicator& group(const Run& run) {
  internal::require(run.tp != nullptr && run.tp->size() == run.layout.tp,
                    "a layout with tp > 1 needs Run::tp of as many ranks");
  return *run.tp;
}

/// Makes later work of the queue wait for `work`: on the device if it carries the work out,
/// otherwise on the host. Throws the work's error if it has failed by now; later calls throw
/// later errors.
void order(const Run& run, Work work) {
  work.wait(run.device);
}

Terms after_queue(const Run& run) {
  return {.after = run.device.record(run.device.compute())};
}

}  // namespace

TensorShard divided(const Index& index, const Layout& layout, int axis, int groups) {
  if (layout.tp == 1) return {};
  return {.axis = axis, .parts = layout.tp, .index = index.tp_rank(), .groups = groups};
}

TensorShard divided_padded(const Index& index, const Layout& layout, int axis) {
  TensorShard shard = divided(index, layout, axis);
  shard.padded = layout.tp > 1;
  return shard;
}

TensorShard of_own_rows(const Layout& layout) {
  return {.partial = row_parts(layout) > 1};
}

std::int64_t first_own_row(const Run& run, std::int64_t rows) {
  const int parts = row_parts(run.layout);
  return parts == 1 ? 0 : rows / parts * group(run).rank();
}

TensorView own_rows(const Run& run, const TensorView& whole) {
  TensorView own = whole;
  own.parts = row_parts(run.layout);
  own.data = whole.as<std::byte>() +
             first_own_row(run, whole.rows()) * whole.columns() * kernels::size_of(whole.type);
  return own;
}

void gather(const Run& run, const TensorView& own, const TensorView& whole) {
  if (row_parts(run.layout) > 1) return all_gather(run, own, whole);
  TROUPE_ASSERT(own.data == whole.data, "without sequence a rank's own rows are all rows");
}

void sum(const Run& run, const TensorView& whole, const TensorView& own) {
  if (row_parts(run.layout) > 1)
    return order(run, group(run).reduce_scatter(buffer_of(whole), buffer_of(own),
                                                collective::Reduce::sum, after_queue(run)));
  TROUPE_ASSERT(own.data == whole.data, "without sequence a rank's own rows are all rows");
  if (run.layout.tp > 1) all_reduce(run, whole);
}

void all_gather(const Run& run, const TensorView& part, const TensorView& all) {
  order(run, group(run).all_gather(buffer_of(part), buffer_of(all), after_queue(run)));
}

void all_reduce(const Run& run, const TensorView& view) {
  order(run, group(run).all_reduce(buffer_of(view), collective::Reduce::sum, after_queue(run)));
}

}  // namespace troupe::train::parts
