/// FolderCheckpoint: a complete checkpoint in a folder, mapped into memory.
///
///     FolderCheckpoint saved = FolderCheckpoint::open("/runs/gpt/step-00000100");
///     for (std::size_t f = 0; f < saved.document().files.size(); ++f) saved.verify(f).value();
///     engine.restore(saved.view(), saved.identity());
#pragma once

#include "troupe/runtime/base/result.hpp"
#include "troupe/train/checkpoint/folder/document.hpp"
#include "troupe/train/checkpoint/folder/mapped_file.hpp"
#include "troupe/train/checkpoint/folder/retention.hpp"
#include "troupe/train/checkpoint/snapshot.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace troupe::train {

class TROUPE_API FolderCheckpoint {
 public:
  /// Maps the files and checks everything but their hashes: the document, that each file is
  /// regular and has its size, and each header. Throws InvalidArgument, one sentence that names
  /// the file and says what is wrong; Unavailable when a file cannot be read.
  static FolderCheckpoint open(const std::string& path);

  const std::string& path() const noexcept { return path_; }
  const CheckpointDocument& document() const noexcept { return document_; }
  /// Returns a number that stands for the contents; never 0.
  std::uint64_t identity() const noexcept;
  /// Returns the engine's state. It borrows from this object.
  SnapshotView view() const;
  /// Returns the contents of parts.bin; empty when there is none.
  BlobView parts() const noexcept;
  /// Reads a file of the document and compares its hash. Error: invalid_argument, one sentence
  /// that names the file.
  Result<void> verify(std::size_t file) const;

 private:
  std::string path_;
  CheckpointDocument document_;
  std::vector<MappedFile> files_;  // as in the document
  std::vector<TensorOf<BlobView>> tensors_;
};

/// Returns what stands at that path, whatever it is: problem is empty for a complete checkpoint of
/// that step. Looks at sizes, and reads no tensor.
TROUPE_API FoundFolder look_at(const std::string& path, long step);
/// Returns the folders of steps in a run's folder, in any order. Throws Unavailable when the
/// folder cannot be read.
TROUPE_API std::vector<FoundFolder> folders_in(const std::string& run);

/// Writes one safetensors file with the weights of a checkpoint, or with the moments too
/// (`all`), as a Snapshot's file. Two checkpoints with the same values give the same bytes.
/// Throws as FolderCheckpoint::open() and write_snapshot(), and InvalidArgument when a file's hash
/// differs or the checkpoint has no engine.
TROUPE_API void consolidate(const std::string& checkpoint, const std::string& to, bool all);

}  // namespace troupe::train
