/// Decides when an agent prepares (first touches) memory that its node's processes will ask for,
/// and how much at a time. It prepares in pieces that grow, while no message is waiting and three
/// quarters of a CPU are unused. A plain state machine of the agent's loop.
///
///     if (ready != 0) prefault.disturbed(now);
///     else if (prefault.due(now))
///       if (const Bytes piece = prefault.look(now, used, cpus); piece.count != 0)
///         prefault.prepared(make_ready(piece), now_again);
///     timer.set(prefault.next_deadline());
///
/// A message that arrives meanwhile waits until the piece is done, and two nodes may wait for each
/// other so. Therefore a pause follows each piece, and pieces begin small again after a message.
/// CPU use is measured from one look to the next, over all of the time between them. Without that
/// test, the preparation takes CPU time from calls in flight and from objects that cross to
/// another node when there is only one CPU.
#pragma once

#include "troupe/runtime/base/clock.hpp"

#include <algorithm>
#include <optional>

namespace troupe::agent {

class PrefaultPolicy {
 public:
  static constexpr Duration kPause = std::chrono::milliseconds(2);
  /// Pause until the next look when other threads use the CPUs.
  static constexpr Duration kWanted = std::chrono::milliseconds(20);
  static constexpr Bytes kFirst{256 << 10}, kMost{4 << 20};

  /// Reports a message or another event for the agent.
  void disturbed(Time now) {
    piece_ = kFirst;
    due_ = std::max(due_, now + kPause);
  }
  /// Reports that memory was handed out, so that there may be more to prepare.
  void taken(Time now) {
    more_ = true;
    disturbed(now);
  }
  /// Whether look() is to be called in a pass without events.
  bool due(Time now) const noexcept { return more_ && due_ <= now; }
  /// Returns how much to prepare now; if it is not zero, prepared() follows. `used` is the CPU
  /// time of the programs and of the agent's other threads since the beginning. Precondition:
  /// due().
  Bytes look(Time now, Duration used, int cpus) {
    // Room: of `cpus` CPUs at most `cpus` - 3/4 were used since the last look.
    const bool room = looked_ && 4 * (used - used_) < (4 * cpus - 3) * (now - *looked_);
    due_ = now + (looked_ && !room ? kWanted : kPause);
    looked_ = now;
    used_ = used;
    if (room) return piece_;
    piece_ = kFirst;
    return Bytes{};
  }
  /// `more`: there is more to prepare, and memory for it.
  void prepared(bool more, Time now) {
    more_ = more;
    due_ = now + kPause;
    piece_ = std::min(piece_ * 2, kMost);
  }
  /// When to call due() next; Time::max(): not before taken().
  Time next_deadline() const noexcept { return more_ ? due_ : Time::max(); }

 private:
  bool more_ = true;
  Time due_{};
  Bytes piece_ = kFirst;
  std::optional<Time> looked_;
  Duration used_{};  ///< the argument `used` at that look
};

}  // namespace troupe::agent
