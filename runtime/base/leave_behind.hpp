/// leave_behind: keeps what a thread uses that hangs in a call of the system, as on a broken disk.
///
///     struct Shared { std::mutex mutex; …; SignalMaskedThread thread; };  // all that it uses
///     thread = SignalMaskedThread("troupe-logs", [shared = shared_.get()] { run(*shared); });
///     …
///     if (it has ended within some time) return shared_->thread.join();
///     leave_behind(shared_);                              // a destructor returns nevertheless
#pragma once

#include "troupe/runtime/base/assert.hpp"

#include <memory>

namespace troupe {

/// Keeps `used` until the process ends. It is never destroyed, not at the process's end either: the
/// thread may go on at any time. So `used` owns the thread and all that the thread touches, and
/// nothing of it refers to the object that ends. A sanitizer finds it reachable, so it is no leak.
/// Call it once a bounded wait for the thread is over; a thread that has ended is joined instead.
/// No limit: each call costs the memory of `used` and a thread, so it is for the ends of objects
/// that a process makes seldom. Thread-safe. Never blocks for long and never throws; a process
/// without memory for it aborts.
TROUPE_API void leave_behind(std::shared_ptr<void> used) noexcept;

}  // namespace troupe
