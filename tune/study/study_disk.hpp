/// A study's folder as a runner uses it: the store, the files of checkpoints, and models by key.
///
///     auto disk = StudyDisk::open(ctx, "studies/resnet", {});
///     auto core = Experiment::restore(space, options, (*disk)->lines());     // a study that exists
///     (*disk)->write(core.take_batch());                  // before any command is carried out
///     (*disk)->save(save, model);                         // becomes a file in the background
///     for (auto& stored : (*disk)->take_stored()) core.stored(stored.key, now);
///     setup.start = (*disk)->model(start.from->key);       // from memory, or from the file
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/tune/study/stored_models.hpp"
#include "troupe/tune/study/study_store.hpp"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::tune {

/// For one thread.
class TROUPE_API StudyDisk {
 public:
  struct Options {
    StudyStoreOptions store = {};
    /// How long a batch or a file waits for room on a full disk.
    Duration wait_for_space = std::chrono::seconds(60);
    /// Gets one line when the disk is full; may be empty.
    std::function<void(const std::string&)> tell = {};
    /// Called on another thread when take_stored() has something; may be empty.
    std::function<void()> wake = {};
    /// Asked while a batch waits for room, or for a disk that hangs: true gives the batch up. May be
    /// empty.
    std::function<bool()> stops = {};
  };
  /// A checkpoint that is on disk, or cannot be.
  struct Stored {
    std::string key;
    std::optional<Error> error;
  };
  /// A file that the store names and that is missing or of another length.
  struct Fault {
    std::string key, why;
  };

  /// Opens the folder, or makes it. Blocks and fails as StudyStore::open().
  static Result<std::unique_ptr<StudyDisk>> open(Context ctx, const std::string& folder,
                                                 Options options);

  /// Whether the store has no event.
  bool is_new() const { return store_->last_event() == 0; }
  /// Returns a function that returns the study's description, then each event, then nothing. It
  /// throws as StudyRows does, and must not outlive this object.
  std::function<std::optional<std::string>()> lines() const;
  /// Returns the bad files, each once.
  std::vector<Fault> faults() const;
  /// Deletes the files for which `needs` returns false, and those that no row names. Call it after
  /// a restart.
  void keep_only(const std::function<bool(const std::string& key)>& needs);

  /// Writes the batch. On a full disk it says so once and blocks until there is room, for
  /// `wait_for_space` at most; then it throws OutOfDisk. Throws Cancelled when `stops` says so
  /// meanwhile: a full disk has nothing of the batch then, and one that hangs may take it later.
  /// Other errors as StudyStore::write().
  void write(const StudyBatch& batch);
  /// Says that the end of this object must not wait for a disk that hangs.
  void end_soon() noexcept { store_->end_soon(); }
  /// Writes the model to a file, in the background. take_stored() tells the end.
  void save(const CheckpointSave& save, const train::SavedModel& model);
  /// Returns the files that are complete since the last call, and those that failed. A file that
  /// meets a full disk is tried again each second, for `wait_for_space`.
  std::vector<Stored> take_stored();
  /// Forgets the model and deletes its file.
  void drop(const std::string& key);
  bool has(const std::string& key) const { return models_.count(key) > 0; }
  /// Whether files are being written, or wait for room.
  bool writes() const noexcept { return writing_ > 0; }
  /// Returns the model, which load_model() loads. Reads the file when no process has the model in
  /// memory. Throws InvalidArgument, naming the file, when it is missing or altered, or the key is
  /// unknown; OutOfMemory.
  train::SavedModel model(const std::string& key);
  /// Returns a function that does the same, and may outlive this object.
  std::function<train::SavedModel()> loader(const std::string& key) const;

  StudyStore& store() noexcept { return *store_; }

 private:
  struct Model {
    CheckpointSave save;
    train::SavedModel saved;  ///< none: only the file has the model
    Time begun{};
    Time again = Time::max();  ///< when a full disk is tried again
    bool writing = false;
  };
  StudyDisk(Context ctx, std::unique_ptr<StudyStore> store, Options options);
  void read_rows();
  void say(const Error& error);

  Context ctx_;
  Options options_;
  std::unique_ptr<StudyStore> store_;
  std::map<std::string, Model> models_;
  bool full_ = false;  ///< it was said that the disk is full
  int writing_ = 0;    ///< files whose end take_stored() has not told
  std::unique_ptr<CheckpointFiles> files_;
};

}  // namespace troupe::tune
