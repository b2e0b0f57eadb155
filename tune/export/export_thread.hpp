/// ExportThread: runs a study's exporters beside the runner, so that no report waits for them.
///
///     ExportThread exports(store.rows(), folder.exports_path(), board);
///     batch.exporters = exports.take_rows();        // in each batch of the study
///     batch.exporters = exports.finish();           // at the end: all events are in the files
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/tune/export/exports.hpp"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace troupe::tune {

/// The runner's thread alone calls its functions.
class ExportThread {
 public:
  /// How long a disk that hangs is waited for after end_soon().
  static constexpr Duration kLastPiece = std::chrono::milliseconds(300);

  /// Keeps a copy of `rows`. Throws OutOfMemory when the system starts no thread.
  ExportThread(const StudyRows& rows, const std::string& folder, const Board& board);
  ExportThread(const ExportThread&) = delete;
  ExportThread& operator=(const ExportThread&) = delete;
  /// Ends the thread after the piece of work that it does, or leaves it behind after end_soon() and
  /// kLastPiece. The study's folder stays this process's then until that piece is done.
  ~ExportThread();

  /// Returns the cursors that moved since the last call, to be written to the store. Does not
  /// block.
  std::vector<ExporterRow> take_rows();
  /// Ends the thread, exports what the store has, and returns the cursors. Blocks on the disk.
  std::vector<ExporterRow> finish();
  /// Returns what went wrong since the last call.
  std::vector<std::string> take_notes();
  /// Says that the end of this object must not wait for a disk that hangs.
  void end_soon() noexcept { ends_soon_ = true; }

 private:
  struct Work;
  void stop();

  std::shared_ptr<Work> work_;  ///< a thread that hangs keeps it
  bool ends_soon_ = false;
};

}  // namespace troupe::tune
