/// Decides when the next life of an actor may begin. A plain state machine; Directory has one for
/// each actor.
///
///     pace.begins();                                   // a life: it gets a process
///     pace.lives(now);                                 // its constructor has returned
///     Duration pause = pace.ended(options, now, max_restarts, asked);
///
/// A life is *short* when it ends in its constructor, or within `lived` after that. In a row of
/// short lives, the first is followed by the next life at once, the second after `first`, and each
/// further one after twice the pause before, up to `longest`. A longer life ends the row. A kill
/// with may_restart neither ends nor lengthens the row, and the next life follows at once.
///
/// An actor without a restart limit begins at most one life per `first`. For a limit of up to
/// `storm` / `first` restarts, all pauses together take at most `storm`. Callers that wait then
/// learn soon that the actor is dead.
#pragma once

#include "troupe/runtime/base/clock.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace troupe::control {

struct RestartPaceOptions {
  Duration first = std::chrono::milliseconds(100);
  Duration longest = std::chrono::seconds(10);
  Duration lived = std::chrono::seconds(1);
  Duration storm = std::chrono::seconds(5);
};

class RestartPace {
 public:
  void begins() noexcept;
  void lives(Time now) noexcept { alive_since_ = now; }
  /// Ends the present life and returns the pause before the next one. `limit`: of restarts; -1:
  /// none. `asked`: the life was killed with may_restart.
  Duration ended(const RestartPaceOptions& options, Time now, std::int64_t limit,
                 bool asked) noexcept;

  /// Returns how many lives have begun.
  std::uint32_t count() const noexcept { return count_; }
  /// Returns how many short lives in a row have ended.
  std::uint32_t short_lives() const noexcept { return short_lives_; }
  /// Describes an end of the present life at `now`, to follow "which": "ended in its constructor".
  std::string describe_end(Time now) const;

 private:
  std::uint32_t count_ = 0, short_lives_ = 0;
  std::optional<Time> alive_since_;
  std::optional<Time> next_at_;  ///< when the life after the last end may begin
};

/// Returns "1st", "2nd", "11th".
std::string ordinal(std::uint32_t number);

}  // namespace troupe::control
