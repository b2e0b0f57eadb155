/// The files of a study for other tools, written while it runs: CSV, JSON lines and TensorBoard.
///
///     Exports exports(folder.exports_path(), board);          // name of the score, goal and space
///     Exports::Pumped done = exports.pump(store.rows(), 1000);
///     batch.exporters = done.rows;                            // the cursors, in a next batch
///
/// An exporter reads the events of the store from its cursor, the row x/NAME: the last event that
/// it has taken, and the length of each file then. After a restart it cuts its files to these
/// lengths and goes on, so that they become the files of an uninterrupted study.
///
///     csv          progress.csv, a row per report; trials.csv, a row per trial that is over
///     jsonl        progress.jsonl and trials.jsonl, the same as JSON, with all metrics
///     tensorboard  tensorboard/trial-N/, a run for each of the live and the best trials
#pragma once

#include "troupe/tune/board.hpp"
#include "troupe/tune/study/study_rows.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe::tune {

/// Which exporters write.
struct ExportOptions {
  bool csv = true;
  bool jsonl = true;
  bool tensorboard = true;
  /// TensorBoard's runs. When there are as many, the worst trial that is over gives its run to a
  /// new one. While all of them are live, a new trial waits for a run, and its curve begins late.
  std::size_t most_runs = 200;
};

/// For one thread at a time, which need not be the one that writes the store.
class TROUPE_API Exports {
 public:
  struct Pumped {
    /// The cursors that moved. The owner writes them to the store, the rows of an earlier call
    /// first. Rows that are lost cost the same work again.
    std::vector<ExporterRow> rows;
    std::vector<std::string> notes;  ///< what went wrong, each once until it works again
    bool more = false;               ///< further events are in the store
  };

  /// `folder` is made when it is needed. Of `board` only metric, goal and space count.
  Exports(std::string folder, const Board& board, ExportOptions options = {});
  ~Exports();
  Exports(const Exports&) = delete;
  Exports& operator=(const Exports&) = delete;

  /// Takes at most `budget` events into each exporter and writes its files. Blocks on the disk.
  /// Throws nothing: an exporter that fails leaves a note, keeps its cursor, and tries again in the
  /// next call.
  Pumped pump(const StudyRows& rows, std::size_t budget);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace troupe::tune
