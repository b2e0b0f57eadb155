/// When an agent prepares memory that its node's processes will ask for, and how much at a time: in
/// pieces that grow, while nobody wants anything of it and three quarters of a CPU are left over.
/// A plain state machine.
///
///     if (ready != 0) prefault.disturbed(now);
///     else if (prefault.due(now))
///       if (const Bytes piece = prefault.look(now, used, cpus); piece.count != 0)
///         prefault.prepared(make_ready(piece), now_again);
///     timer.set(prefault.next_deadline());
///
/// What comes meanwhile waits for the piece, and so do two nodes that wait for each other: after
/// each there is a pause, and pieces begin small when there was a message. What was used is judged
/// from one look to the next, so over all that passed between them: with one CPU the work took two
/// fifths of it from calls in flight, and a sixth from objects that crossed to another node.
#pragma once

#include "troupe/runtime/base/clock.hpp"

#include <algorithm>
#include <optional>

namespace troupe::agent {

class PrefaultPolicy {
 public:
  static constexpr Duration kPause = std::chrono::milliseconds(2);
  /// Until it is asked again when others use the CPUs.
  static constexpr Duration kWanted = std::chrono::milliseconds(20);
  static constexpr Bytes kFirst{256 << 10}, kMost{4 << 20};

  /// Somebody wanted something.
  void disturbed(Time now) {
    piece_ = kFirst;
    due_ = std::max(due_, now + kPause);
  }
  /// Memory was handed out: there may be more to prepare.
  void taken(Time now) {
    more_ = true;
    disturbed(now);
  }
  /// Whether look() is to be called, if nothing has happened.
  bool due(Time now) const noexcept { return more_ && due_ <= now; }
  /// How much is to be prepared now; then prepared() follows. `used`: CPU time of the programs, and
  /// of the agent's other threads, since the beginning. Precondition: due().
  Bytes look(Time now, Duration used, int cpus) {
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
  /// When due() has to be asked; Time::max(): not before taken().
  Time next_deadline() const noexcept { return more_ ? due_ : Time::max(); }

 private:
  bool more_ = true;
  Time due_{};
  Bytes piece_ = kFirst;
  std::optional<Time> looked_;
  Duration used_{};  ///< until then
};

}  // namespace troupe::agent
