/// Tells whether a thread of this process computes or waits for something.
///
///     ThreadWatch watch;                                    // on the thread that is watched
///     ThreadWatch::Look last = watch.look();                // on any other thread, later
///     if (watch.waited_since(last)) …
#pragma once

#include "troupe/runtime/base/clock.hpp"

#include <pthread.h>
#include <sys/types.h>
#include <ctime>

namespace troupe::os {

/// Watches the thread that makes it. Must not be used after that thread has ended.
class ThreadWatch {
 public:
  struct Look {
    Time at{};
    Duration computed{};   ///< the thread's CPU time
    bool waiting = false;  ///< it was in a system call that may wait
  };
  ThreadWatch() noexcept;
  bool is_this_thread() const noexcept;
  /// Cost: some microseconds. Where the kernel does not say what the thread does, it counts as
  /// waiting. A thread that sleeps waits, since it may look at a flag of another thread now and
  /// then. One that yields computes.
  Look look() const noexcept;
  /// Returns whether the thread has mostly waited since `last`, and sets `last` to now.
  bool waited_since(Look& last) const noexcept;

 private:
  pthread_t handle_;
  pid_t thread_;
  clockid_t clock_{};
  bool has_clock_;
};

}  // namespace troupe::os
