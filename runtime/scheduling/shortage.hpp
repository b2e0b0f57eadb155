/// Whether a node is short of processes: it is at a limit of its own, or the system has refused
/// one. A request that lacks a process waits as long as other processes end or start. When
/// neither has happened for a while, it is refused with the name of the limit. A plain state
/// machine, used by LeaseTable.
///
///     shortage.met(now, "fork failed: …");              // a process could not be started
///     shortage.moved(now);                              // a process has started or ended
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
  /// A process has started or ended: the patience begins anew.
  void moved(Time now) {
    if (since_) since_ = now;
  }
  void over() noexcept { since_.reset(); }

  explicit operator bool() const noexcept { return since_.has_value(); }
  const std::string& why() const noexcept { return why_; }
  /// Returns when a request that has waited since `waits_since` is refused; nullopt: there is no
  /// shortage.
  std::optional<Time> patience_ends(Time waits_since) const {
    if (!since_) return std::nullopt;
    return std::max(*since_, waits_since) + patience_;
  }

 private:
  Duration patience_;
  std::optional<Time> since_;
  std::string why_;
};

/// Whether all processes that a node may have run or start, and none of them is about to end. No
/// start of another process helps an actor there, and actors seldom end by themselves: one that
/// asks for a process is refused soon.
class FullHouse {
 public:
  /// How long the actor waits nevertheless: the end of another one may be on its way to the agent.
  static constexpr Duration kPatience = std::chrono::seconds(1);

  void look(Time now, bool full) noexcept {
    if (!full)
      since_.reset();
    else if (!since_)
      since_ = now;
  }
  /// A process has ended.
  void over() noexcept { since_.reset(); }
  /// Returns when an actor that has waited since `waits_since` is refused; nullopt: there is room.
  std::optional<Time> patience_ends(Time waits_since) const {
    if (!since_) return std::nullopt;
    return std::max(*since_, waits_since) + kPatience;
  }

 private:
  std::optional<Time> since_;
};

}  // namespace troupe::scheduling
