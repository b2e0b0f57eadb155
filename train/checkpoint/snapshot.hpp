/// Snapshot: the state of a training run by tensor name, independent of any layout.
///
///     Snapshot snapshot = engine.snapshot();  // every rank calls it, and has all of it
///     if (mesh.rank() == 0) write_snapshot("step-1000.safetensors", snapshot);
///     engine.restore(read_snapshot("step-1000.safetensors"));
///
/// A value type: it can be sent to other processes, put into the object store, and copied between
/// trials.
#pragma once

#include "troupe/runtime/base/units.hpp"
#include "troupe/train/optimizers/loss_scaler.hpp"
#include "troupe/train/params/view.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe::train {

/// One whole tensor, row-major.
template <class Bytes>
struct TensorOf {
  std::string name;  ///< "transformer.wte.weight"; moments: "optimizer.m.transformer.wte.weight"
  DType type = DType::f32;
  std::vector<std::int64_t> shape;
  Bytes bytes;
};

/// `Bytes` is a contiguous range of std::byte that owns or borrows its memory.
template <class Bytes>
struct SnapshotOf {
  std::int64_t step = 0;
  std::uint64_t seed = 0;  ///< of the run; dropout depends on it and on the step
  std::vector<TensorOf<Bytes>> tensors;
  std::optional<LossScale> loss_scale = {};  ///< of an f16 run
  /// The step at which the moments were 0. It is above 0 in a run that restored weights alone.
  std::int64_t moments_since = 0;
};

using NamedTensor = TensorOf<std::vector<std::byte>>;
using Snapshot = SnapshotOf<std::vector<std::byte>>;
/// A snapshot that borrows its bytes, from a file or an object.
using SnapshotView = SnapshotOf<BlobView>;

/// Return the same tensors or the same state as borrowed views. The arguments must outlive them.
template <class Bytes>
std::vector<TensorOf<BlobView>> views_of(const std::vector<TensorOf<Bytes>>& tensors) {
  std::vector<TensorOf<BlobView>> views;
  views.reserve(tensors.size());
  for (const TensorOf<Bytes>& tensor : tensors)
    views.push_back({tensor.name, tensor.type, tensor.shape, BlobView(tensor.bytes)});
  return views;
}
template <class Bytes>
SnapshotView view_of(const SnapshotOf<Bytes>& snapshot) {
  return {.step = snapshot.step,
          .seed = snapshot.seed,
          .tensors = views_of(snapshot.tensors),
          .loss_scale = snapshot.loss_scale,
          .moments_since = snapshot.moments_since};
}

/// Returns a snapshot that owns copies of the tensors.
TROUPE_API Snapshot copy_of(const SnapshotView& snapshot);

/// Writes the snapshot to a new file beside the path, flushes and renames it: a crash leaves the
/// old file or the new one. Only one process at a time may write a path. Blocks. The file is a
/// safetensors file, whose metadata has the step, the seed, the loss scale and the step of the
/// first moments where there are such, and the version of this format. Throws OutOfDisk,
/// Unavailable or InvalidArgument (two tensors of one name, bytes that do not fit a shape), with
/// the path.
TROUPE_API void write_snapshot(const std::string& path, const Snapshot& snapshot);
/// Reads a snapshot. Tensors come in the order of the file: wide types first, then by name.
/// Blocks. Allocates only after it has checked the header, and then as much as the tensors have.
/// A file without a seed gives seed 0. Throws InvalidArgument, saying what is wrong, for a file
/// that is no snapshot. Throws Unavailable when it cannot be read, and OutOfMemory.
TROUPE_API Snapshot read_snapshot(const std::string& path);

/// Returns the first difference between two lists of tensors as a sentence, such as "tensor a is
/// f32[2], and f32[3] is wanted". Empty when names, shapes and types are the same, in any order.
TROUPE_API std::string difference(const std::vector<TensorOf<BlobView>>& have,
                                  const std::vector<TensorOf<BlobView>>& want);
template <class A, class B>
std::string difference(const std::vector<TensorOf<A>>& have, const std::vector<TensorOf<B>>& want) {
  return difference(views_of(have), views_of(want));
}

}  // namespace troupe::train
