/// Calls of an actor's process to its own actor. No channel leads from a process to itself, so such
/// a call joins the arrived ones at once, and its reply is taken in as if a ring had brought it.
///
/// The actor runs one method at a time, on one thread. A method that waits on that thread for a
/// result of its own actor waits for a call that begins when the method has ended: that is an
/// error, not a wait.
#pragma once

#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/base/ids.hpp"

#include <cstdint>
#include <thread>

namespace troupe::client {

class Loopback {
 public:
  /// On the actor's thread, before its constructor runs.
  void begin(ActorId actor) {
    actor_ = actor;
    thread_ = std::this_thread::get_id();
  }
  /// Zero: this process hosts none.
  ActorId actor() const noexcept { return actor_; }
  /// Whether this thread runs the actor's methods.
  bool on_actor_thread() const noexcept { return actor_ && std::this_thread::get_id() == thread_; }
  /// The number of the next call.
  std::uint64_t next() noexcept { return ++sent_; }

  static Error waits_for_itself() {
    return Error(
        Code::invalid_argument,
        "this method of an actor waits for a call to the same actor, which begins when the "
        "method has ended: make it a coroutine and co_await the Ref, or return the Ref",
        Outcome::not_executed);
  }

 private:
  ActorId actor_;
  std::thread::id thread_;
  std::uint64_t sent_ = 0;
};

}  // namespace troupe::client
