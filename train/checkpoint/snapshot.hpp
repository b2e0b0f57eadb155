/// Snapshot: the state of a run by tensor name, in no layout.
///
///     Snapshot snapshot = engine.snapshot();  // every rank calls it, and has all of it
///     if (mesh.rank() == 0) write_snapshot("step-1000.safetensors", snapshot);
///     engine.restore(read_snapshot("step-1000.safetensors"));
///
/// A value: it may cross processes, be put into the object store and be copied by a trial.
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

/// One whole tensor; row-major.
template <class Bytes>
struct TensorOf {
  std::string name;  ///< "transformer.wte.weight"; moments: "optimizer.m.transformer.wte.weight"
  DType type = DType::f32;
  std::vector<std::int64_t> shape;
  Bytes bytes;
};

/// `Bytes` is a run of std::byte that owns its memory or borrows it.
template <class Bytes>
struct SnapshotOf {
  std::int64_t step = 0;
  std::uint64_t seed = 0;  ///< of the run: what dropout depends on beside the step
  std::vector<TensorOf<Bytes>> tensors;
  std::optional<LossScale> loss_scale = {};  ///< of an f16 run
};

using NamedTensor = TensorOf<std::vector<std::byte>>;
using Snapshot = SnapshotOf<std::vector<std::byte>>;
/// One whose bytes lie in somebody else's memory: a file's, an object's.
using SnapshotView = SnapshotOf<BlobView>;

/// The same tensors, or the same state, in the memory of these, which must outlive the views.
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
          .loss_scale = snapshot.loss_scale};
}

/// Writes beside the path, flushes and renames: a crash leaves the old file or the new. One process
/// at a time writes a path. Blocks. The file is a safetensors file whose
/// metadata has the step, the seed, the loss scale where there is one and the version of this format. Throws OutOfDisk, Unavailable or
/// InvalidArgument (two tensors of a name, bytes that do not fit a shape), with the path.
TROUPE_API void write_snapshot(const std::string& path, const Snapshot& snapshot);
/// Tensors come in the order of the file: wide types first, then by name. Blocks; takes no memory
/// before it has checked the header, then as much as the tensors have. Throws InvalidArgument,
/// saying what and where, for a file that is none (one without a seed has 0); Unavailable when it cannot be read; OutOfMemory.
TROUPE_API Snapshot read_snapshot(const std::string& path);

/// What differs between two lists of tensors, in a sentence that names the first one; empty when
/// names, shapes and types are the same, in whatever order. "tensor a is f32[2], and f32[3] is
/// wanted".
TROUPE_API std::string difference(const std::vector<TensorOf<BlobView>>& have,
                                  const std::vector<TensorOf<BlobView>>& want);
template <class A, class B>
std::string difference(const std::vector<TensorOf<A>>& have, const std::vector<TensorOf<B>>& want) {
  return difference(views_of(have), views_of(want));
}

}  // namespace troupe::train
