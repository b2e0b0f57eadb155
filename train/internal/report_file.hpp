/// ReportFile: the reports of a run, one JSON object a line, in FOLDER/reports.jsonl.
#pragma once

#include "troupe/runtime/base/fd.hpp"
#include "troupe/train/metrics.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe::train::internal {

/// A report, and the value of the metric that decides which checkpoint is the best.
struct Reported {
  Metrics metrics;
  std::optional<double> value;
};

class ReportFile {
 public:
  /// Opens the file and reads it up to its first line that is no report, as a crash may leave one.
  /// Throws Unavailable, with the path.
  explicit ReportFile(std::string path);

  const std::vector<Reported>& all() const noexcept { return reports_; }
  /// Removes the reports of later steps from the file.
  void cut_after(long step);
  /// Appends a report. Removes reports of its step and of later ones first. A disk that takes no
  /// more keeps what it has: reports are then missing in the file, and nothing else fails.
  void append(const Reported& report);

 private:
  void cut();

  std::string path_;
  Fd file_;
  std::vector<Reported> reports_;
  std::vector<std::uint64_t> ends_;  // of each report's line, in bytes
};

}  // namespace troupe::train::internal
