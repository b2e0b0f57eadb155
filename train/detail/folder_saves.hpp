/// FolderSaves: one rank's part in the checkpoints of a run's folder.
#pragma once

#include "troupe/train/checkpoint/folder/folder_checkpoint.hpp"
#include "troupe/train/checkpoint/folder/writer.hpp"
#include "troupe/train/detail/folder_save.hpp"
#include "troupe/train/detail/gang.hpp"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace troupe::train::internal {

/// Use it on the loop's thread.
class FolderSaves {
 public:
  using Emit = std::function<void(FolderEvent)>;
  /// `world` is the gang's group, from which this makes one of its own; null for one rank. Every
  /// rank calls it, and it blocks. Throws as Communicator::split().
  FolderSaves(const WorkerSetup& setup, collective::Communicator* world, Emit emit);

  /// Waits for the save before, for half of the gang's timeout at most. Other ranks then wait for
  /// this one without a timeout. Returns whether that save has ended.
  bool wait();
  /// Tells that the last save has failed, once ten times the gang's timeout have passed. What its
  /// writer tells later does not count. Never blocks.
  void look();
  /// Tells that all ranks leave out the checkpoint of that step.
  void leave_out(long step);
  StagedState& staged() noexcept { return writer_.staged(); }
  /// Writes what is staged, in the background. Precondition: wait() returned true.
  void start(FolderSave save);
  /// Waits for the last save, until ten times the gang's timeout after its start at most.
  void finish();

  /// A checkpoint to start from, as this rank found it.
  struct Candidate {
    std::shared_ptr<const FolderCheckpoint> checkpoint;  ///< null: it cannot be opened
    /// 0: sound, as far as this rank looked; 1: cannot be opened; n + 2: file n has other bytes.
    std::int64_t fault = 0;
    std::string problem;
  };
  /// Opens the checkpoint and reads this rank's share of its files.
  Candidate look_at(const std::string& path) const;

 private:
  int rank_, world_;
  Duration timeout_;
  RunSetup run_;
  Emit emit_;
  long last_ = 0;  // step of the last save
  Time deadline_{};
  std::shared_ptr<std::atomic<bool>> told_;  // what became of it; null: there was none
  CheckpointWriter writer_;
};

}  // namespace troupe::train::internal
