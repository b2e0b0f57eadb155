/// ExportThread: runs a study's exporters beside the runner, so that no report waits for them.
///
///     ExportThread exports(store.rows(), folder.exports_path(), board);
///     batch.exporters = exports.take_rows();        // in each batch of the study
///     batch.exporters = exports.finish();           // at the end: all events are in the files
#pragma once

#include "troupe/runtime/base/signal_masked_thread.hpp"
#include "troupe/tune/export/exports.hpp"

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

namespace troupe::tune {

/// The runner's thread alone calls its functions.
class ExportThread {
 public:
  /// `rows` outlives this object. Throws OutOfMemory when the system starts no thread.
  ExportThread(const StudyRows& rows, const std::string& folder, const Board& board);
  ExportThread(const ExportThread&) = delete;
  ExportThread& operator=(const ExportThread&) = delete;
  /// Ends the thread after the piece of work that it does.
  ~ExportThread();

  /// Returns the cursors that moved since the last call, to be written to the store. Does not
  /// block.
  std::vector<ExporterRow> take_rows();
  /// Ends the thread, exports what the store has, and returns the cursors. Blocks on the disk.
  std::vector<ExporterRow> finish();
  /// Returns what went wrong since the last call.
  std::vector<std::string> take_notes();

 private:
  void work();
  bool pump();
  void stop();

  const StudyRows& rows_;
  Exports exports_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;
  std::vector<ExporterRow> moved_;
  std::vector<std::string> notes_;
  SignalMaskedThread thread_;
};

}  // namespace troupe::tune
