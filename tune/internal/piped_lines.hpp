/// PipedLines: the lines of trials among those that the pipes of nodes bring to a driver.
///
///     place.begins = pipes.begins(7);  place.ends = pipes.ends();    // the processes print these
///     if (pipes.take(line)) …                                        // a line of a trial
///     for (const auto& [trial, text] : pipes.lines()) …
///
/// Processes print marks around the lines of a trial, so that each stream of a process is a trial's
/// from one mark to the next.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/log_filter.hpp"

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace troupe::tune {

/// Thread-safe.
class PipedLines {
 public:
  /// Bytes that wait for lines(). Beyond them take() waits, and the nodes keep what follows.
  static constexpr std::size_t kMostQueued = 8 << 20;

  /// `token` tells these marks from those of other experiments, and from text that looks like them.
  explicit PipedLines(const std::string& token);
  PipedLines(const PipedLines&) = delete;
  PipedLines& operator=(const PipedLines&) = delete;

  // Marks: the trial's lines follow, none follow.
  std::string begins(int trial) const;
  std::string ends() const;
  /// Returns the mark of a new round: a node that prints it has no earlier line that is not read.
  /// Marks of earlier rounds count no more.
  std::string begin_round();

  /// Returns whether the line is a trial's or a mark. Blocks while too much waits for lines().
  bool take(const LogLine& line);
  /// Returns the lines since the last call, those of one stream in their order.
  std::vector<std::pair<int, std::string>> lines();
  /// Waits until so many nodes have printed the round's mark. Returns whether they have. Returns
  /// early when take() waits for lines().
  bool await_complete(std::size_t nodes, Time until);
  /// From now on take() takes marks alone, and does not block.
  void close();

 private:
  /// node, process, whether it is standard error
  using Stream = std::tuple<std::string, std::int64_t, bool>;
  void add(int trial, std::string_view text);
  void mark(const LogLine& line, std::string_view mark);

  const std::string end_;  ///< of each mark
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Stream, int> trials_;  ///< of the streams
  std::vector<std::pair<int, std::string>> lines_;
  std::size_t bytes_ = 0;  ///< in lines_
  std::uint64_t round_ = 0;
  std::set<std::string> complete_;  ///< nodes that have printed the round's mark
  bool closed_ = false;
};

}  // namespace troupe::tune
