/// The end of a worker's process.
///
/// A worker ends in order when it is told to end and has no call to run: exit handlers and
/// destructors of static objects run, and the buffers of its streams are written. Otherwise it ends
/// as if killed, and only complete lines of its standard output are certain to be written.
#pragma once

#include "troupe/runtime/base/clock.hpp"

#include <streambuf>

namespace troupe::client {

/// A worker is killed when its exit handlers take longer.
inline constexpr Duration kExitHandlers = std::chrono::seconds(2);

/// Writes what a call has left in the buffer of standard output. A buffer that the program chose
/// itself is left alone. Costs a few loads when nothing is left.
class WorkerOutput {
 public:
  WorkerOutput() noexcept;
  /// Called by the thread that runs user code, between two calls.
  void pass_on() const noexcept;

 private:
  const std::streambuf* at_start_;  ///< of std::cout; a call may leave another one, even a dead one
};

/// Tells a worker that nothing waits for its work any more. Does not return if it runs a call
/// (`busy`). From here on an exception that ends a thread of the user stops that thread only.
void abandon_worker(bool busy) noexcept;

/// Ends the process in order, after kExitHandlers at the latest.
[[noreturn]] void end_worker_in_order();

/// Ends the process without exit handlers. Writes the buffers of stdio.
[[noreturn]] void end_worker(int code);

}  // namespace troupe::client
