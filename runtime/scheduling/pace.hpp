/// Collects how long tasks ran, by function, until the next report. A worker reports to its
/// agent, and the agent to control, which finds slow nodes with it (control/slow_nodes.hpp).
///
///     book.add(function, 1, ran);
///     if (now >= next) tell(book.take());
#pragma once

#include "troupe/runtime/wire/messages.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace troupe::scheduling {

class SiteRunTimes {
 public:
  /// Adds `tasks` runs that took `ran_ns` together. When the book has as many functions as a
  /// message takes, a new function replaces the one with the least run time.
  void add(const wire::FunctionKey& function, std::uint32_t tasks, std::uint64_t ran_ns) {
    if (last_ >= sites_.size() || sites_[last_].function != function) find(function);
    sites_[last_].tasks += tasks;
    sites_[last_].ran_ns += ran_ns;
  }
  bool empty() const noexcept { return sites_.empty(); }
  std::vector<wire::SitePace> take() { return std::exchange(sites_, {}); }

 private:
  void find(const wire::FunctionKey& function) {
    auto at = std::find_if(sites_.begin(), sites_.end(),
                           [&](const wire::SitePace& site) { return site.function == function; });
    if (at == sites_.end() && sites_.size() == wire::kMaxSites) {
      at = std::min_element(
          sites_.begin(), sites_.end(),
          [](const wire::SitePace& a, const wire::SitePace& b) { return a.ran_ns < b.ran_ns; });
      *at = {function, 0, 0};
    }
    if (at == sites_.end()) at = sites_.insert(at, {function, 0, 0});
    last_ = static_cast<std::size_t>(at - sites_.begin());
  }

  std::vector<wire::SitePace> sites_;
  std::size_t last_ = 0;
};

}  // namespace troupe::scheduling
