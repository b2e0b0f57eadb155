/// PipedLines: the lines of trials among those that the pipes of nodes bring to a driver.
///
///     place.begins = pipes.begins(7);  place.ends = pipes.ends();    // the processes print these
///     if (pipes.take(line)) …                                        // a line of a trial
///     for (const auto& [trial, text] : pipes.lines()) …
///     pipes.ended(7);                                                // its processes, too
///
/// Processes print marks around the lines of a trial, so that each stream of a process is a trial's
/// from one mark to the next. A mark stands behind the last line when that has no end. A node cuts
/// long lines into pieces, so a mark may come in two of them.
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/log_filter.hpp"

#include <chrono>
#include <condition_variable>
#include <cstddef>
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
  /// Streams of trials. A further one replaces the one that has been quiet the longest; those whose
  /// processes have ended go first.
  static constexpr std::size_t kMostStreams = 16'384;
  /// How long a stream whose process has ended is quiet until it is forgotten: lines come late.
  static constexpr Duration kQuiet = std::chrono::seconds(60);

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

  /// Returns whether the line is a trial's or a mark. Of a line of others with a mark behind it, the
  /// text before the mark stays in `line`. Blocks while too much waits for lines().
  bool take(LogLine& line, Time now = steady_now());
  /// Returns the lines since the last call, those of one stream in their order.
  std::vector<std::pair<int, std::string>> lines(Time now = steady_now());
  /// The trial's processes have ended, or are killed. A killed one prints no mark.
  void ended(int trial, Time now = steady_now());
  /// Returns the streams of trials that are known.
  std::size_t streams() const;
  /// Waits until so many nodes have printed the round's mark. Returns whether they have. Returns
  /// early when take() waits for lines().
  bool await_complete(std::size_t nodes, Time until);
  /// From now on take() takes marks alone, and does not block.
  void close();

 private:
  /// node, process, whether it is standard error
  using Source = std::tuple<std::string, std::int64_t, bool>;
  struct Stream {
    int trial = 0;
    Time heard{};
    bool ended = false;  ///< its process has
  };
  /// The begin of a mark at the end of a stream's last line.
  struct Cut {
    std::string text;
    std::uint64_t line = 0;  ///< the number of that line among all of lines(); 0: not a trial's
  };
  struct Mark {
    enum class Kind { begins, ends, complete } kind;
    std::uint64_t number = 0;  ///< of the trial or the round
    std::size_t at = 0;        ///< where it begins in the line
  };
  std::optional<Mark> mark_of(std::string_view line) const;
  std::size_t cut_of(std::string_view line) const;
  std::uint64_t add(int trial, std::string_view text);
  void drop_end(const Cut& cut);
  void hear(const Mark& mark, const Source& source, Time now);
  void forget(Time now);
  void make_room();

  const std::string end_;  ///< of each mark
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Source, Stream> streams_;
  std::map<Source, Cut> cuts_;
  std::vector<std::pair<int, std::string>> lines_;
  std::uint64_t given_ = 0;  ///< lines before those in lines_
  std::size_t bytes_ = 0;    ///< in lines_
  std::uint64_t round_ = 0;
  std::set<std::string> complete_;  ///< nodes that have printed the round's mark
  Time looked_{};                   ///< when forget() did
  bool closed_ = false;
};

}  // namespace troupe::tune
