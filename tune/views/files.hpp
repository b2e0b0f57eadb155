/// An experiment on disk: its log, and everything that people and other tools read.
///
///     LogFile log("results/experiment.jsonl");
///     log.append(experiment.take_log());                   // after every input
///     write_results("results", experiment.board(), unix_seconds);   // at the end, or now and then
///
/// These calls block on the file system; call them outside of message handlers that must be quick.
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/tune/board.hpp"

#include <string>
#include <vector>

namespace troupe::tune {

/// Appends lines. A line is in the kernel's hands when append() returns: it survives this process.
/// The file is locked as long as this lives: two processes never write one log.
class TROUPE_API LogFile {
 public:
  enum class Mode { append, create };
  /// Opens or creates the file, and its folder. A torn last line of an earlier run is cut off.
  /// Throws InvalidArgument when it cannot be opened, when another writes it, and, with create,
  /// when it has lines.
  explicit LogFile(const std::string& path, Mode mode = Mode::append);
  /// All lines or none. Throws OutOfDisk when there is no space, InvalidArgument for other errors.
  void append(const std::vector<std::string>& lines);

 private:
  std::string path_;
  Fd file_;
};

/// The whole lines of a log, for Experiment::restore(); a torn last one is left out.
/// InvalidArgument when it cannot be read or is larger than 4 GiB.
TROUPE_API Result<std::vector<std::string>> read_log(const std::string& path);

/// Writes curves.svg, report.html, progress.csv, trials.csv, trials.jsonl and one TensorBoard run
/// per trial (tensorboard/trial-N; event files of earlier runs are removed) into the folder, which
/// is made when missing. Each file appears whole or not at all. Errors as LogFile::append. The
/// experiment began at `began`, in seconds of the Unix epoch. `log` is the path of its log: with it
/// progress.csv and the runs have every report, in the order of their arrival, and without it those
/// that the board keeps.
TROUPE_API void write_results(const std::string& folder, const Board& board, double began,
                              const std::string& log = {});

}  // namespace troupe::tune
