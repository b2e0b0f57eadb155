/// TensorFile: writes a safetensors file tensor by tensor, without the whole in memory.
///
///     TensorFile file = TensorFile::create(path, tensors, step).value();
///     for (each tensor in that order) file.append(bytes).value();
///     SavedFile saved = file.finish().value();      // synced; its size and hash
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/base/units.hpp"
#include "troupe/train/checkpoint/folder/document.hpp"
#include "troupe/train/hash.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::train {

/// A tensor in f32.
struct TensorShape {
  std::string name;
  std::vector<std::int64_t> shape;
};

/// Errors of its methods: out_of_disk and unavailable, with the path.
class TROUPE_API TensorFile {
 public:
  /// Creates or replaces the file and writes its header. The metadata has the step, and what
  /// PyTorch's distributed checkpoints need to know that each tensor is whole. Precondition:
  /// `tensors` are ordered by name, and names are different.
  static Result<TensorFile> create(const std::string& path, const std::vector<TensorShape>& tensors,
                                   long step);
  /// Appends the next tensor.
  Result<void> append(BlobView bytes);
  /// Syncs the file. Precondition: all tensors were appended.
  Result<SavedFile> finish();

 private:
  TensorFile(Fd file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  Fd file_;
  std::string path_;
  HashStream hash_;
  std::uint64_t size_ = 0;
};

}  // namespace troupe::train
