/// Helpers for layers: errors in one sentence each, and elementwise calls over views.
#pragma once

#include "troupe/train/internal/reject.hpp"
#include "troupe/train/layers/parts/parallel.hpp"

#include <string>

namespace troupe::train::internal {

/// Throws a sentence like "transformer.h.0 takes f32 [batch, time, 384], not f32 [3, 5]".
[[noreturn]] inline void reject_input(const Layer& layer, const Spec& in,
                                      const std::string& wants) {
  const std::string divided =
      in.parts == 1 ? "" : " divided over " + std::to_string(in.parts) + " ranks";
  reject(layer.name() + " takes " + wants + ", not " + std::string(kernels::name_of(in.type)) +
         " " + in.shape.text() + divided);
}

/// Returns whether `in` has the layout's type, `rank` dimensions, the last one of size `last`
/// (below 0: any), and all rows.
inline bool fits(const Spec& in, const Layout& layout, int rank, std::int64_t last) {
  return in.type == layout.compute && in.shape.rank() == rank && in.parts == 1 &&
         (last < 0 || in.shape[rank - 1] == last);
}

inline std::string type_text(const Layout& layout) {
  return std::string(kernels::name_of(layout.compute));
}

/// Throws unless tp is 1. For layers that are neither divided nor replicated.
inline void refuse_tensor_parallel(const Layer& layer, const Layout& layout) {
  if (layout.tp != 1)
    reject(layer.name() + " is not divided over tensor-parallel ranks: use a layout with tp = 1");
}

/// Throws when the layout's ranks do not divide the rows evenly.
inline void require_even_rows(const Layer& layer, const Shape& shape, const Layout& layout) {
  const int ranks = parts::row_parts(layout);
  if (shape[0] * shape[1] % ranks != 0)
    reject(layer.name() + ": sequence parallelism over tp = " + std::to_string(ranks) +
           " needs a multiple of that in batch * time, not " + std::to_string(shape[0]) + " * " +
           std::to_string(shape[1]) + ": choose other sizes, or sequence = false");
}

/// Throws unless the input is [batch, time, channels], its rows divided as the layout says.
inline void require_stream(const Layer& layer, Spec in, const Layout& layout,
                           std::int64_t channels) {
  if (in.parts == parts::row_parts(layout)) in.parts = 1;
  if (!fits(in, layout, 3, channels))
    reject_input(layer, in, type_text(layout) + " [batch, time, " + std::to_string(channels) + "]");
  require_even_rows(layer, in.shape, layout);
}

/// Copies a whole view.
inline void copy(const Run& run, const TensorView& from, const TensorView& to) {
  run.device.copy(run.queue(), to.data, from.data, static_cast<std::size_t>(from.bytes()));
}

/// out = a + b, elementwise.
inline void add(const Run& run, const TensorView& a, const TensorView& b, const TensorView& out) {
  run.k().add(run.queue(),
              {.type = run.type, .n = out.count(), .a = a.data, .b = b.data, .out = out.data});
}

/// Throws for the first id outside [least, end). The ids lie on the host.
inline void check_ids(const Layer& layer, const TensorView& ids, std::int32_t least,
                      std::int64_t end) {
  for (std::int64_t i = 0; i < ids.count(); ++i) {
    const std::int32_t id = ids.as<const std::int32_t>()[i];
    if (id < least || id >= end)
      reject(layer.name() + ": id " + std::to_string(id) + " at place " + std::to_string(i) +
             " is not in [" + std::to_string(least) + ", " + std::to_string(end) + ")");
  }
}

}  // namespace troupe::train::internal
