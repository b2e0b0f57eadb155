/// What the trials of a study print, in a file for each: FOLDER/trial-7.txt.
///
///     TrialLogs logs(folder.logs_path());
///     logs.write(7, "a line");                  // or a trial writes path_of(7) itself
///     logs.over(7, state == TrialState::failed);
///
/// A file keeps the latest lines, up to a size. Files stay for the trials that are not over, for
/// the latest trials that failed, and for the latest others.
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/base/units.hpp"

#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::tune {

struct TrialLogLimits {
  Bytes per_trial{16ull << 20};
  std::size_t failed = 100;
  std::size_t others = 100;
};

/// All functions are thread-safe, block on the disk, and throw nothing.
class TROUPE_API TrialLogs {
 public:
  /// `folder` is made with the first line. Files of an earlier process stay and count: those of
  /// trials that over() does not name count as the oldest others.
  explicit TrialLogs(std::string folder, TrialLogLimits limits = {});
  TrialLogs(const TrialLogs&) = delete;
  TrialLogs& operator=(const TrialLogs&) = delete;

  /// Appends a line; `text` has no newline. A trial that is over may still print.
  void write(int trial, std::string_view text);
  /// Says how a trial has ended. Deletes the files that are too many. Call it after a restart for
  /// the trials that are over, in their order, too.
  void over(int trial, bool failed);
  /// Says that a trial of an earlier process goes on.
  void live(int trial);
  /// Returns the first failure since the last call. Lines that could not be written are lost.
  std::optional<Error> take_error();
  std::string path_of(int trial) const;

 private:
  struct File {
    Fd fd;
    std::uint64_t size = 0;
  };
  void look();
  Result<void> append(int trial, std::string_view text);
  Result<File*> open(int trial);
  Result<void> halve(int trial, File& file) const;
  void forget(int trial);
  void trim(std::deque<int>& over, std::size_t most);
  void note(const Result<void>& done);

  const std::string folder_;
  const TrialLogLimits limits_;
  std::mutex mutex_;
  std::map<int, File> open_;
  std::deque<int> failed_, others_;  ///< trials that are over and may have a file, oldest first
  std::optional<Error> error_;
};

}  // namespace troupe::tune
