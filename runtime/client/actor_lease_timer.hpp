/// Stops the thread of an actor while its node may not serve calls of actors (the actor lease),
/// even when the node's agent itself hangs. Serves ClientEngine in processes that host an actor.
///
/// The agent publishes on its doorbell until when its actors may run
/// (control::SelfFencing::serves_until), at most 8 s ahead, and renews that each time it runs.
/// Control waits for 10 s before it starts the actors elsewhere, so a word that a dead agent left
/// has run out by then.
///
/// A kernel timer interrupts the actor's thread when the lease ends. Its signal handler returns
/// when the agent has published a later time, and otherwise waits for one. A pending signal is
/// handled before the thread runs another instruction. So a process that was stopped for longer,
/// with or without its agent, stands still when it wakes, in whatever order they wake. Calls
/// need no check of their own.
///
/// The signal is the highest real-time signal without a handler. When the program installs a
/// handler for it later, look() takes another signal. While user code runs, the I/O thread renews
/// the timer halfway (look()), so that no system call of the user is interrupted needlessly.
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

/// What the published word means at a moment. All times are of the word's clock (CLOCK_BOOTTIME).
struct ActorLease {
  bool may = false;
  Time alarm = Time::max();  ///< when to interrupt the thread; max: never
  Time look = Time::max();   ///< when to look at the word again; max: never
  static constexpr Duration kShortest = std::chrono::milliseconds(10);  ///< between two looks
};
/// Returns what `word` means at `now`. In its own file, so that a program with a stand-in for
/// ActorLeaseTimer still has this rule.
ActorLease actor_lease_at(std::int64_t word, Time now) noexcept;

/// One for the process: an actor lives as long as its process.
class ActorLeaseTimer {
 public:
  ActorLeaseTimer() = default;
  ActorLeaseTimer(const ActorLeaseTimer&) = delete;
  ActorLeaseTimer& operator=(const ActorLeaseTimer&) = delete;
  /// Runs on the thread that called begin(). The word is not read any more.
  ~ActorLeaseTimer();
  /// Starts the timer, which interrupts the calling thread. Has no effect when the word is
  /// kServesAlways, or when no signal is free for it (which is logged on stderr).
  void begin(const std::atomic<std::int64_t>& word, Time now);
  /// Moves the timer if that is due. Returns when to call it again. Not from several threads at
  /// once.
  Time look(Time now) noexcept;

 private:
  Time next_look_ = Time::max();
};

}  // namespace troupe::client
