/// The stacks of a process that lives, read by a child of the caller (role `stack`), so that the
/// caller neither loads libdw nor waits.
///
///     LiveStack stack = LiveStack::start(pid).value();
///     poll(stack.fd(), …) → if (stack.read() || now >= until) print(stack.text());
#pragma once

#include "troupe/runtime/base/clock.hpp"
#include "troupe/runtime/base/fd.hpp"
#include "troupe/runtime/base/result.hpp"
#include "troupe/runtime/os/stack_lines.hpp"

#include <sys/types.h>
#include <string>

namespace troupe::os {

class LiveStack {
 public:
  static constexpr Duration kLimit = std::chrono::seconds(5);  ///< the child ends soon after it

  /// Starts the child. Errors: out_of_memory, unavailable (the child cannot be started).
  static Result<LiveStack> start(pid_t process, StackLines::By by = StackLines::By::role);
  LiveStack(LiveStack&& other) noexcept;
  LiveStack& operator=(LiveStack&&) = delete;
  /// Kills the child, and blocks until it is reaped. The process goes on also when the child had no
  /// time to leave it. A process that was halted before start() stays halted.
  ~LiveStack();

  int fd() const noexcept { return answer_.get(); }
  /// The process that reads the stacks, a child of this one.
  pid_t child() const noexcept { return child_; }
  /// Reads what has arrived. Returns whether the child has ended. Does not block.
  bool read();
  /// Returns a paragraph for each thread: "thread 8185 (mix)" and its frames, innermost first. For
  /// threads that could not be read it has their state in /proc and the reason. No control
  /// character passes.
  std::string text() const;

 private:
  LiveStack(pid_t process, pid_t child, Fd answer, Fd goes_on) noexcept;

  pid_t process_, child_;
  Fd answer_;
  Fd goes_on_;  ///< handle of the process, which was not halted
  std::string bytes_;
};

/// Returns the state of each thread of the process in /proc: "thread 8185 (mix): sleeping in
/// futex_do_wait". Beyond 64 threads it counts the others. Empty: there is no such process.
std::string thread_states(pid_t process);

/// Lets the process at the other end of the socket, and its children, read this process's stacks,
/// also where the system lets a parent alone do that (Yama).
void allow_live_stack(int socket) noexcept;

}  // namespace troupe::os
