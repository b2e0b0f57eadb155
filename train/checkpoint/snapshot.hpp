/// Snapshot: the state of a run by tensor name, in no layout.
///
///     Snapshot snapshot = engine.snapshot();
///     write_snapshot("step-1000.safetensors", snapshot);
///     engine.restore(read_snapshot("step-1000.safetensors"));
///
/// A value: it may cross processes, be put into the object store and be copied by a trial.
#pragma once

#include "troupe/train/params/view.hpp"

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

namespace troupe::train {

/// One whole tensor; row-major.
struct NamedTensor {
  std::string name;  ///< "transformer.wte.weight"; moments: "optimizer.m.transformer.wte.weight"
  DType type = DType::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

struct Snapshot {
  std::int64_t step = 0;
  std::vector<NamedTensor> tensors;
};

/// Writes beside the path, flushes and renames. Throws NoSpace, Unavailable or InvalidArgument with
/// the path.
TROUPE_API void write_snapshot(const std::string& path, const Snapshot& snapshot);
/// Throws InvalidArgument, saying what and where, for a file that is none; takes no memory before
/// it has checked the header.
TROUPE_API Snapshot read_snapshot(const std::string& path);

/// What differs between two lists of tensors, in a sentence that names the first one; empty when
/// names, shapes and types are the same.
TROUPE_API std::string difference(const std::vector<NamedTensor>& have,
                                  const std::vector<NamedTensor>& want);

}  // namespace troupe::train
