/// StudySession: the models of an experiment that runs and, with a results folder, its study on
/// disk.
///
///     StudySession study(ctx, options, tell);
///     Experiment experiment = study.experiment(space, options);    // new, or of the folder
///     study.start(experiment, now);
///     study.take_files(experiment, now);                           // in each round …
///     study.write(experiment);                                     // … before its commands
///     setup.start = study.model(start.from->key);
///
/// For one thread. All calls block on the file system if there is a folder.
#pragma once

#include "troupe/tune/experiment.hpp"
#include "troupe/tune/export/export_thread.hpp"
#include "troupe/tune/optimize.hpp"
#include "troupe/tune/study/study_disk.hpp"
#include "troupe/tune/study/study_server.hpp"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::tune {

class StudySession {
 public:
  using Tell = std::function<void(const std::string& line)>;

  /// Opens or makes the folder options.results; empty: there is none. `tell` gets a line when
  /// something about the folder concerns the user. Throws as StudyDisk::open(), and InvalidArgument
  /// when options.resume does not allow what is there. `stops` ends a wait for room on a full disk,
  /// with Cancelled.
  StudySession(Context ctx, const ExperimentOptions& options, Tell tell,
               std::function<bool()> stops);

  bool in_folder() const noexcept { return disk_ != nullptr; }
  /// The folder for what trials print. Precondition: in_folder().
  std::string logs_path() const { return disk_->store().folder().logs_path(); }
  /// Whether experiment() returned a new one.
  bool is_new() const noexcept { return is_new_; }
  /// Returns the experiment of the folder, or a new one. Throws InvalidArgument, naming the folder,
  /// when that is another experiment or damaged.
  Experiment experiment(const SearchSpace& space, const ExperimentOptions& options);
  /// Begins a new experiment, or continues an interrupted one from its files. Files that cannot be
  /// used are told, once each.
  void start(Experiment& experiment, Time now);

  /// Applies what verbs have asked of the study.
  void hear_verbs(Experiment& experiment, Time now);
  /// Writes what the experiment's inputs have changed, and answers the verbs. On a full disk it
  /// blocks as StudyDisk::write() does, and throws OutOfDisk or Cancelled.
  void write(Experiment& experiment);
  /// Tells the experiment which checkpoints have a file now, and which will have none. Throws
  /// OutOfDisk when one waited for room in vain.
  void take_files(Experiment& experiment, Time now);
  /// When to call take_files() again; Time::max() when no file is being written.
  Time next_files(Time now) const;
  /// Ends the exports: their files have all events then.
  void finish();
  /// Says that the end of this object must not wait for a disk that hangs.
  void end_soon() noexcept {
    if (disk_) disk_->end_soon();
    if (exports_) exports_->end_soon();
    if (server_) server_->end_soon();
  }

  /// Takes a model that a trial on this node saved, and writes its file in the background.
  void save(const CheckpointSave& checkpoint, const train::SavedModel& model,
            std::optional<NodeId> node, int slots);
  bool has(const std::string& key) const;
  /// Returns the node on which the model was saved, if it is known.
  std::optional<NodeId> node_of(const std::string& key) const;
  /// Returns the model, from memory or its file. Throws InvalidArgument when the key is unknown, or
  /// its file missing or altered, and OutOfMemory.
  train::SavedModel model(const std::string& key);
  /// Returns a function that does the same later, when this object is gone.
  std::function<train::SavedModel()> loader(const std::string& key) const;
  /// Forgets the model and deletes its file.
  void drop(const std::string& key);

 private:
  struct Model {
    train::SavedModel saved;
    std::optional<NodeId> node;
  };
  void begin_services(const Board& board);
  void tell_of_exports();
  void tell_of_room(std::uint64_t bytes, int slots);
  void tell_complete(const Board& board) const;

  Context ctx_;
  std::string folder_;
  Tell tell_;
  std::unique_ptr<StudyDisk> disk_;
  std::unique_ptr<ExportThread> exports_;
  std::unique_ptr<StudyServer> server_;
  bool is_new_ = true;
  bool told_of_room_ = false;
  std::map<std::string, Model> models_;  ///< by key; those that this process received
};

}  // namespace troupe::tune
