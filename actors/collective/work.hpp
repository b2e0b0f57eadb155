/// Work: an operation of a group that is under way.
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

/// Borrows the operation's memory until it is done. For one thread at a time.
class [[nodiscard, gnu::visibility("default")]] Work {
 public:
  /// One that is done.
  Work() noexcept;
  Work(Work&&) noexcept;
  /// Waits for what it stood for.
  Work& operator=(Work&& other) noexcept;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  /// Waits until the operation has ended, and tells its error to nobody. While an exception unwinds
  /// the stack, an operation that has not ended ends the group.
  ~Work();

  /// Returns when the operation is done, or throws its error; again the same when it is called
  /// again.
  void wait();
  /// The same; an operation that others keep from its end until then ends the group with TimedOut,
  /// up to 50 ms later. Operations that were asked for before it have the same deadline.
  void wait(Time deadline);
  /// Where a device carries the operation out, its compute() waits before all that it is given from
  /// now on, the host does not, and this Work is done; the group's later calls, and is_over(), tell
  /// of an error. The end of the communicator waits for the operation. Elsewhere as wait().
  void wait(kernels::Device& device);
  /// Whether wait() would not block.
  bool is_done() const noexcept;
  /// Happens when wait() would not block any more, also because of an error.
  kernels::Event done() const;

 private:
  friend class Communicator;
  explicit Work(std::shared_ptr<internal::Flight> flight) noexcept;
  void finish() noexcept;
  std::shared_ptr<internal::Flight> flight_;
  int exceptions_ = 0;  // under way when it was made
};

}  // namespace troupe::collective
