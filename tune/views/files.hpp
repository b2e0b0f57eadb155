/// An experiment on disk: its log, and the files that people and other tools read.
///
///     LogFile log("results/experiment.jsonl");
///     log.append(experiment.take_log());                   // after every input
///     write_results("results", experiment.board(), unix_seconds);   // at the end, or now and then
///
/// These calls block on the file system. Do not call them in message handlers that must be quick.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/tune/board.hpp"

#include <string>
#include <vector>

namespace troupe::tune {

/// Appends lines to a log file. When append() returns, the lines are in the kernel's page cache:
/// they survive this process, though not a power failure. The object locks the file while it lives,
/// so that two processes never write one log.
class TROUPE_API LogFile {
 public:
  enum class Mode { append, create };
  /// Opens or creates the file, and its folder. Cuts off a torn last line of an earlier run.
  /// Throws InvalidArgument when the file cannot be opened, when another process writes it, and,
  /// with Mode::create, when it has lines.
  explicit LogFile(const std::string& path, Mode mode = Mode::append);
  /// Appends all lines or none. Throws OutOfDisk when there is no space, InvalidArgument for other
  /// errors.
  void append(const std::vector<std::string>& lines);

 private:
  std::string path_;
  Fd file_;
};

/// Reads the lines of a log for Experiment::restore(), without a torn last one. Returns
/// InvalidArgument when the file cannot be read or is larger than 4 GiB.
TROUPE_API Result<std::vector<std::string>> read_log(const std::string& path);

/// Writes curves.svg and report.html into the folder, and makes it when it is missing. Each file
/// appears whole or not at all. Throws as LogFile::append.
TROUPE_API void write_pages(const std::string& folder, const Board& board);

/// Does the same on a thread of its own and waits at most `within` for the disk. Returns false when
/// it hangs. The thread is left behind then; the pages that are not in place yet never appear.
/// Throws as write_pages(), and OutOfMemory when the system starts no thread.
TROUPE_API bool write_pages_within(const std::string& folder, const Board& board, Duration within);

/// Writes curves.svg, report.html, progress.csv, trials.csv, trials.jsonl and one TensorBoard run
/// per trial (tensorboard/trial-N) into the folder, and makes it when it is missing. Event files of
/// earlier runs are removed. Each file appears whole or not at all. Throws as LogFile::append.
///
/// `began` is the experiment's start in seconds of the Unix epoch. `log` is the path of its log.
/// With it, progress.csv and the TensorBoard runs hold every report in order of arrival; without
/// it, they hold the reports that the board keeps.
TROUPE_API void write_results(const std::string& folder, const Board& board, double began,
                              const std::string& log = {});

}  // namespace troupe::tune
