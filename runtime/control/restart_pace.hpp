/// When the next life of an actor may begin. A plain state machine of the directory, one for each
/// actor.
///
///     pace.begins();                                   // a life: it gets a process
///     pace.lives(now);                                 // its constructor has returned
///     Duration pause = pace.ended(options, now, max_restarts, asked);
///
/// A life is *short* when it ends in its constructor, or within `lived` after that. The first of a
/// row of short lives is followed by the next at once, the second after `first`, each further one
/// after twice the pause before, up to `longest`. A life that has lived ends the row. An end that
/// somebody asked for (a kill that may restart) neither ends nor lengthens it, and is followed by
/// the next life at once.
///
/// Who may restart without limit begins at most one life per `first` in any case. A limit of
/// `storm` / `first` restarts and less is reached within `storm` and what its lives take: whoever
/// waits hears then that the actor is dead.
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
  /// The present life is over. `limit`: of restarts, -1: none. Returns how long the next one waits.
  Duration ended(const RestartPaceOptions& options, Time now, std::int64_t limit,
                 bool asked) noexcept;

  /// How many lives have begun.
  std::uint32_t count() const noexcept { return count_; }
  /// How many short lives in a row have ended.
  std::uint32_t short_lives() const noexcept { return short_lives_; }
  /// How the present life ends now, behind "which": "ended in its constructor".
  std::string describe_end(Time now) const;

 private:
  std::uint32_t count_ = 0, short_lives_ = 0;
  std::optional<Time> alive_since_;
  std::optional<Time> next_at_;  ///< when the life after the last end might begin
};

/// "1st", "2nd", "11th".
std::string ordinal(std::uint32_t number);

}  // namespace troupe::control
