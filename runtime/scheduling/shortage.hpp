/// Whether a node is short of processes: at a limit of its own, or after the system refused one.
/// Who waits for a process then waits as long as others end or start, and is refused, by the name
/// of the limit, when neither has happened for a while. A plain state machine.
///
///     shortage.met(now, "fork failed: …");              // a process could not be had
///     shortage.moved(now);                              // one has started, or ended
///     if (auto until = shortage.patience_ends(request.since); until && *until <= now) refuse(…);
#pragma once

#include "troupe/runtime/base/clock.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace troupe::scheduling {

class Shortage {
 public:
  explicit Shortage(Duration patience) : patience_(patience) {}

  void met(Time now, std::string why) {
    if (!since_) since_ = now;
    why_ = std::move(why);
  }
  /// Processes come and go: the patience begins anew.
  void moved(Time now) {
    if (since_) since_ = now;
  }
  void over() noexcept { since_.reset(); }

  explicit operator bool() const noexcept { return since_.has_value(); }
  const std::string& why() const noexcept { return why_; }
  /// When somebody who has waited since then is refused; nullopt: there is no shortage.
  std::optional<Time> patience_ends(Time waits_since) const {
    if (!since_) return std::nullopt;
    return std::max(*since_, waits_since) + patience_;
  }

 private:
  Duration patience_;
  std::optional<Time> since_;
  std::string why_;
};

}  // namespace troupe::scheduling
