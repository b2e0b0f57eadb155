/// Calls of an actor's process to its own actor. No channel leads from a process to itself. Such
/// a call joins the arrived calls at once, and its reply is handled as if a ring had brought it.
/// Serves ClientEngine.
///
/// The actor runs one method at a time, on one thread. A method that blocks on that thread for a
/// result of its own actor would wait for a call that begins after the method: that is an error
/// instead.
#pragma once

#include "troupe/runtime/base/error.hpp"
#include "troupe/runtime/base/ids.hpp"

#include <cstdint>
#include <thread>

namespace troupe::client {

class Loopback {
 public:
  /// Call on the actor's thread, before its constructor runs.
  void begin(ActorId actor) {
    actor_ = actor;
    thread_ = std::this_thread::get_id();
  }
  /// Returns zero when this process hosts no actor.
  ActorId actor() const noexcept { return actor_; }
  /// Returns whether this thread runs the actor's methods.
  bool on_actor_thread() const noexcept { return actor_ && std::this_thread::get_id() == thread_; }
  /// Returns the number of the next call.
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
