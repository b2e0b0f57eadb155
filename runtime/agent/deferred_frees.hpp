/// Holds back the frees of memory until every message that a free may follow has been read. A plain
/// state machine.
///
///     frees.pass_begins();
///     frees.add(location);              // while the rings are read, and between passes
///     frees.pass_ended(read_all);       // whether nothing was ready at the end
///     for (const wire::Location& location : frees.take_due()) …
///
/// Rings are read in any order, so a free may be read before a message of another process that it
/// follows (an Adopt). That message was published before the free was read. It has therefore been
/// read when nothing is ready any more, and at the latest in the pass after the free was read, since
/// a pass reads at least what was published before it began.
#pragma once

#include "troupe/runtime/wire/messages.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace troupe::agent {

class DeferredFrees {
 public:
  void add(const wire::Location& location) { waiting_.push_back(location); }
  bool empty() const noexcept { return waiting_.empty(); }
  void pass_begins() noexcept { known_before_ = waiting_.size(); }
  void pass_ended(bool read_all) noexcept { due_ = read_all ? waiting_.size() : known_before_; }
  /// Returns what may be freed now, in order.
  std::vector<wire::Location> take_due() {
    std::vector<wire::Location> later(waiting_.begin() + static_cast<std::ptrdiff_t>(due_),
                                      waiting_.end());
    waiting_.resize(due_);
    due_ = 0;
    return std::exchange(waiting_, std::move(later));
  }

 private:
  std::vector<wire::Location> waiting_;
  std::size_t known_before_ = 0;  ///< of waiting_, before the present pass
  std::size_t due_ = 0;           ///< of waiting_
};

}  // namespace troupe::agent
