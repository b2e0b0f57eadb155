/// Which lines of a process's doorbell are taken, and which of all lines a mark may mean.
#pragma once

#include "troupe/runtime/ring/doorbell.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::agent {

/// A line that comes back is given out again. The process hears of the end of its last peer by the
/// ring and of the next one by the socket, in any order: see ClientEngine::on_channel().
class Lines {
 public:
  explicit Lines(std::uint32_t first) noexcept : next_(first) {}
  /// ring::kMaxLines and more: none is left.
  std::uint32_t take() {
    if (free_.empty()) return next_++;
    const std::uint32_t line = free_.back();
    free_.pop_back();
    return line;
  }
  void give_back(std::uint32_t line) { free_.push_back(line); }

 private:
  std::uint32_t next_;
  std::vector<std::uint32_t> free_;
};

/// The agent owns more lines than its doorbell has marks, in a large cluster: calls `look` with
/// each that the mark of `line` may mean.
template <class Look>
void each_line_of_mark(std::uint32_t line, std::size_t lines, const Look& look) {
  for (std::size_t at = line % ring::kMaxLines; at < lines; at += ring::kMaxLines)
    look(static_cast<std::uint32_t>(at));
}

}  // namespace troupe::agent
