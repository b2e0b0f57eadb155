/// The lines of a process's log that wait for their writer. A plain state machine, used by log.cpp.
///
///     lines.add("troupe: node1 is silent", now);
///     for (const std::string& line : lines.take(now)) write(line);
///
/// The queue has a bound. Lines that find it full are counted, and a line with their number takes
/// their place. Equal lines within a second become one line with their number.
#pragma once

#include "troupe/runtime/base/clock.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class LogLines {
 public:
  static constexpr std::size_t kMostBytes = 64 * 1024;  ///< of lines that wait
  static constexpr std::size_t kMostKinds = 32;         ///< of lines whose number is kept
  static constexpr Duration kEqual = std::chrono::seconds(1);
  static constexpr Duration kQuiet = std::chrono::milliseconds(200);
  static constexpr Duration kLongest = std::chrono::seconds(1);

  /// Queues the line. A line that equals one of the last second is counted instead; take() gives
  /// the number when that second is over.
  void add(std::string_view line, Time now);
  /// Keeps the first line of a group and counts the others. take() gives one line for all of them
  /// when none has come for kQuiet, or kLongest after the first.
  void add_counted(std::string_view group, std::string_view line, Time now);
  /// Queues a text even when the queue is full.
  void add_always(std::string text);

  /// Takes what is to be written by now, in order. `all`: also what would wait for its number.
  std::vector<std::string> take(Time now, bool all = false);
  /// Returns when take() has something to give; nullopt: nothing waits.
  std::optional<Time> due() const noexcept;

 private:
  struct Kind {
    std::string key;  ///< a group, or the line itself
    std::string line;
    std::uint64_t count = 0;  ///< lines of which nothing has been written yet
    Time first, last;
    bool held = false;  ///< a group's
  };
  static Time due_of(const Kind& kind) noexcept;
  Kind* find(std::string_view key, bool held) noexcept;
  /// Returns a place for a kind; nullptr: each one is in use.
  Kind* place(Time now);
  void queue(std::string_view line);

  std::vector<std::string> queue_;
  std::size_t bytes_ = 0;
  std::uint64_t lost_ = 0;
  std::vector<Kind> kinds_;
};

}  // namespace troupe
