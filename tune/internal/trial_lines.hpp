/// TrialLines: brings the lines that trials print to the driver, and keeps their files.
///
///     TrialLines lines(folder.logs_path());        // empty: a temporary folder
///     setup.output = lines.place_of(setup.number);
///     for (const auto& [trial, text] : lines.take()) view.line(trial, text);
///     lines.over(trial, failed);
///
/// A trial's process writes the file (TrialOutput), so that its death loses no line.
#pragma once

#include "troupe/tune/export/trial_logs.hpp"
#include "troupe/tune/internal/trial_output.hpp"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tune {

/// For one thread.
class TrialLines {
 public:
  /// Throws OutOfDisk or InvalidArgument when the folder cannot be made.
  explicit TrialLines(const std::string& folder, TrialLogLimits limits = {});
  TrialLines(const TrialLines&) = delete;
  TrialLines& operator=(const TrialLines&) = delete;
  /// Removes a temporary folder.
  ~TrialLines();

  OutputPlace place_of(int trial);
  /// Returns the whole lines since the last call, those of one trial in their order.
  std::vector<std::pair<int, std::string>> take();
  /// The trial is over. Its last lines come with the next take().
  void over(int trial, bool failed);

 private:
  struct File {
    std::uint64_t read = 0;  ///< bytes that take() has looked at
    std::string half;        ///< a line without its end
    bool over = false;
  };
  bool read(int trial, File& file, std::vector<std::pair<int, std::string>>& lines);

  std::string folder_;
  bool temporary_ = false;
  const TrialLogLimits limits_;
  TrialLogs logs_;
  std::map<int, File> files_;
};

}  // namespace troupe::tune
