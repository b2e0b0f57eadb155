/// A process that hosts an actor runs only while its node may serve calls of actors, whether the
/// node's agent runs or not.
///
/// The agent says on its doorbell until when that is (control::SelfFencing::serves_until), and
/// again each time it runs: 8 s from then at most, so that a word which it did not live to take
/// back is over when control, which waits for 10 s, starts its actors elsewhere. A timer of the
/// kernel interrupts the actor's thread at that moment; its handler lets the thread go on when the
/// agent has said a later one, and waits for that otherwise. A signal that has come is handled
/// before the thread runs another instruction: one that was stopped for longer, together with its
/// agent or not, stands still in whatever order they wake. Nothing is asked on the way of a call.
/// The signal is the highest real-time one that nobody handles; when the program installs a handler
/// for it later, look() takes another. While user code runs the I/O thread moves the timer halfway
/// (look()), so that no wait of the user's is interrupted for nothing.
///
///     watch.begin(bell.said(), now);     // on the actor's thread, before it lives
///     next = watch.look(now);            // on any thread, at that time or earlier
#pragma once

#include "troupe/runtime/wire/values.hpp"

#include <atomic>
#include <cstdint>

namespace troupe::client {

using wire::actor_lease_word;
using wire::kServesAlways;
using wire::kServesNever;

/// What follows from the word at a moment; all times are of the word's clock.
struct ActorLease {
  bool may = false;
  Time alarm = Time::max();  ///< when the thread is to be interrupted; max: never
  Time look = Time::max();   ///< when to look at the word again; max: never
};
ActorLease actor_lease_at(std::int64_t word, Time now) noexcept;

/// One for the process: an actor lives as long as it.
class ActorLeaseTimer {
 public:
  ActorLeaseTimer() = default;
  ActorLeaseTimer(const ActorLeaseTimer&) = delete;
  ActorLeaseTimer& operator=(const ActorLeaseTimer&) = delete;
  /// On the thread that began; the word is not read any more.
  ~ActorLeaseTimer();
  /// The calling thread is interrupted from here on. Without effect when the word is kServesAlways,
  /// or no signal is free for it (which is said on stderr).
  void begin(const std::atomic<std::int64_t>& word, Time now);
  /// Moves the timer if it is time; returns when to come back. Not from several threads at once.
  Time look(Time now) noexcept;

 private:
  Time next_look_ = Time::max();
};

}  // namespace troupe::client
