/// Work: an operation of a group that is in progress.
///
///     Work work = communicator.all_reduce(gradients, Reduce::mean);
///     backward_of_the_next_block();
///     work.wait();                                  // returns, or throws the operation's error
#pragma once

#include "troupe/kernels/device.hpp"

#include <memory>

namespace troupe::collective {

namespace internal {
struct Flight;
}
class Communicator;
}  // namespace troupe::collective
namespace troupe::kernels {
class Device;
}
namespace troupe::collective {

/// A handle to an operation. The operation uses the caller's memory until it is done. One thread at
/// a time.
class [[nodiscard, gnu::visibility("default")]] Work {
 public:
  /// Makes a handle that is done.
  Work() noexcept;
  Work(Work&&) noexcept;
  /// Waits for the operation that this handle stood for, then takes over the other's.
  Work& operator=(Work&& other) noexcept;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  /// Waits until the operation has ended, and drops its error. While an exception unwinds the
  /// stack, an operation that has not ended ends the group.
  ~Work();

  /// Returns when the operation is done, or throws its error. Further calls do the same again.
  void wait();
  /// Waits like wait(). An operation that other ranks keep from ending by the deadline ends the
  /// group with TimedOut, up to 50 ms later. The deadline holds for the communicator's earlier
  /// operations too.
  void wait(Time deadline);
  /// Lets the device wait for the operation instead of the host: its compute() queue waits before
  /// all later work, and this Work is done. Later calls of the group and is_over() report an error.
  /// The destructor of the communicator waits for the operation. If no device carries out the
  /// operation, this is wait().
  void wait(kernels::Device& device);
  /// Returns whether wait() would return or throw at once.
  bool is_done() const noexcept;
  /// Returns the event that happens when the operation ends, also by an error.
  kernels::Event done() const;

 private:
  friend class Communicator;
  explicit Work(std::shared_ptr<internal::Flight> flight) noexcept;
  void finish() noexcept;
  std::shared_ptr<internal::Flight> flight_;
  int exceptions_ = 0;  // std::uncaught_exceptions() at construction: more mean an unwinding stack
};

}  // namespace troupe::collective
