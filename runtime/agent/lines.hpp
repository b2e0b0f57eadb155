/// Which lines of a process's doorbell are taken.
#pragma once

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

}  // namespace troupe::agent
