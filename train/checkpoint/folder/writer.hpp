/// CheckpointWriter: exchanges and writes a rank's share of a checkpoint on a thread of its own.
///
///     CheckpointWriter writer(rank, group);
///     if (writer.wait(30s)) { engine.stage(writer.staged()); writer.begin(std::move(job)); }
#pragma once

#include "troupe/actors/collective/communicator.hpp"
#include "troupe/runtime/base/signal_masked_thread.hpp"
#include "troupe/runtime/base/units.hpp"
#include "troupe/train/checkpoint/folder/document.hpp"
#include "troupe/train/checkpoint/folder/staged_state.hpp"

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace troupe::train {

/// What became of one rank's share of a checkpoint.
struct WrittenShare {
  std::vector<SavedFile> files;
  std::string error;  ///< why it was not written; empty: it was
};

/// One share to write.
struct WriteJob {
  std::string folder;  ///< of the ranks that write; made if it is not there
  long step = 0;
  bool engine = false;                     ///< write staged()
  std::optional<Blob> parts;               ///< contents of parts.bin
  std::function<void(WrittenShare)> done;  ///< called on the writer's thread
};

/// Use it from one thread.
class TROUPE_API CheckpointWriter {
 public:
  /// `group` has all ranks of the run, and belongs to the writer alone; null: there is one rank.
  /// Throws OutOfMemory when the system starts no thread.
  CheckpointWriter(int rank, int world, std::unique_ptr<collective::Communicator> group);
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  /// Waits for the job in work. An abort of the group ends its exchange.
  ~CheckpointWriter();

  /// Waits until the last job has ended, `timeout` at most. Returns whether it has.
  bool wait(Duration timeout);
  /// Returns the state to stage into. Precondition: no job is in work.
  StagedState& staged() noexcept { return staged_; }
  /// Starts a job. Precondition: no job is in work.
  void begin(WriteJob job);

 private:
  void run();
  WrittenShare write(const WriteJob& job);
  /// `error`: why nothing can be written, if so.
  void write_engine(const WriteJob& job, std::vector<SavedFile>& files,
                    const std::optional<Error>& error);

  int rank_, world_;
  std::unique_ptr<collective::Communicator> group_;
  StagedState staged_;
  std::mutex mutex_;  // guards the three below
  std::condition_variable changed_;
  std::optional<WriteJob> job_;
  bool ends_ = false;
  SignalMaskedThread thread_;  // last: it uses the other members
};

}  // namespace troupe::train
