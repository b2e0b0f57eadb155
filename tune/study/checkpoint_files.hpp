/// The files of a study's checkpoints: written, read, checked and deleted.
///
///     CheckpointFiles files(folder.checkpoints_path(), {.wake = wake});
///     files.write(save, pull);                            // returns at once
///     for (CheckpointFiles::Done& done : files.take_done()) …
///     StoredModel model = files.read(save).value();        // checked against its hash
///
/// A file is a safetensors file, so that other tools open it: one tensor "model" of bytes, which is
/// what train::save_model() wrote, and the save's fields as metadata. It appears whole or not at
/// all. Experiment has the rules.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/units.hpp"
#include "troupe/train/checkpoint/safetensors.hpp"
#include "troupe/tune/study/checkpoint_save.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::tune {

/// A model's bytes in memory, and the fields of SavedModel that the bytes do not have.
struct StoredModel {
  std::shared_ptr<const void> owner;  ///< keeps the bytes
  BlobView bytes;
  std::uint64_t types = 0, passes = 0, batches = 0;
};

class TROUPE_API CheckpointFiles {
 public:
  /// Models that are in this process's memory at a time.
  static constexpr int kMostAtOnce = 2;
  static constexpr Duration kLastWrites = std::chrono::milliseconds(500);
  /// Brings a model from the object store. It is called on a thread of CheckpointFiles, may block,
  /// and must end when the model is lost.
  using Pull = std::function<Result<StoredModel>()>;
  struct Options {
    /// Called on such a thread after each write; may be empty.
    std::function<void()> wake = {};
    /// What stays free on the disk.
    Bytes low_water{64ull << 20};
    /// Replaces the disk's answer in tests; may be empty.
    std::function<Bytes()> free_space = {};
  };
  struct Done {
    CheckpointSave save;
    /// OutOfDisk names the bytes needed and free; else what the pull or the disk said.
    std::optional<Error> error;
  };

  /// `folder` exists, and this process alone writes it.
  CheckpointFiles(std::string folder, Options options);
  /// Waits for the writes that have begun, for kLastWrites at most. A longer one gives up when the
  /// disk lets it, and leaves no file but a draft. Those that have not begun are dropped.
  ~CheckpointFiles();
  CheckpointFiles(const CheckpointFiles&) = delete;
  CheckpointFiles& operator=(const CheckpointFiles&) = delete;

  /// Pulls the model and writes its file, on threads of this class. One file is written at a time,
  /// while the next model is pulled.
  void write(CheckpointSave save, Pull pull);
  /// Returns the writes that have ended, once each.
  std::vector<Done> take_done();
  /// Deletes files, and forgets writes that have not begun. One that has begun makes its file. A
  /// file that cannot be deleted stays, and the next tidy() finds it.
  void remove(const std::vector<std::string>& keys);

  std::string path_of(const std::string& key) const { return path_of(folder_, key); }
  static std::string path_of(const std::string& folder, const std::string& key);
  /// Reads a file. Blocks. Returns InvalidArgument when it is missing, short or altered, and names
  /// it.
  Result<StoredModel> read(const CheckpointSave& save) const { return read(folder_, save); }
  static Result<StoredModel> read(const std::string& folder, const CheckpointSave& save);
  /// Returns why a file cannot be what was saved: missing, or of another length; empty when it can.
  /// Cheap. An altered one shows in read().
  std::string fault_of(const CheckpointSave& save) const { return fault_of(folder_, save); }
  static std::string fault_of(const std::string& folder, const CheckpointSave& save);
  /// Deletes what no row of the store names: drafts, and files of an earlier life whose rows were
  /// never written or are gone. Returns how many.
  int tidy(const std::vector<std::string>& keys) const;

 private:
  struct Work;
  const std::string folder_;
  std::shared_ptr<Work> work_;  ///< the threads have it, too
};

}  // namespace troupe::tune
