/// The descriptors that one pass of the agent's loop waits for. Each part adds its own, and looks
/// afterwards which of them are ready.
///
///     const std::size_t at = set.add(fd);
///     set.wait(most);
///     if (set.ready(at)) …
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/wait.hpp"

#include <poll.h>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::agent {

class PollSet {
 public:
  void clear() {
    entries_.clear();
    whose_.clear();
  }
  /// Returns the position of the entry. A descriptor of -1 is never ready.
  std::size_t add(int fd, std::uint64_t whose = 0, int events = POLLIN) {
    entries_.push_back({fd, static_cast<short>(events), 0});
    whose_.push_back(whose);
    return entries_.size() - 1;
  }
  /// Returns how many are ready: 0 when `most` has passed, negative after an error or a signal.
  int wait(Duration most) { return wait_for(entries_, most); }
  std::size_t size() const noexcept { return entries_.size(); }
  bool ready(std::size_t at) const { return entries_[at].revents != 0; }
  std::uint64_t whose(std::size_t at) const { return whose_[at]; }

 private:
  std::vector<pollfd> entries_;
  std::vector<std::uint64_t> whose_;
};

}  // namespace troupe::agent
